"""Programs whose shards hold objects of Python, and a process that moves them about while they run."""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from processes import PATIENCE_S, address_of, command, environment, eventually

import brambling as br

# A debugger that takes longer tells less than the system does.
DEBUGGER_S = 40


def objects(turns, *, partitions=6, slow_s=0.001, nap_s=0.0, name="objects"):
    """
    Objects go all ways in every turn, and every kernel is Python's.

    To pickle one takes a while, in which others have the interpreter; so does it when the last one lets go of it. Whoever waits for
    the interpreter with a lock in its hand meets, within moments, somebody who has the interpreter and waits for that lock.
    """
    import time

    class Numbers:
        def __init__(self, values):
            self.values = values

        def __reduce__(self):
            time.sleep(slow_s)
            return Numbers, (self.values,)

        def __del__(self, time=time):
            time.sleep(0)

    def begin(ctx):
        return Numbers([(ctx.partition * 7 + at) % 997 for at in range(20)])

    def scattered(x, ctx):
        return {(ctx.partition + step) % partitions: Numbers(x.values[step:step + 3]) for step in (1, 2, 4)}

    def gathered(pieces):
        time.sleep(nap_s)
        return Numbers([sum(value * (source + 1) for source, piece in pieces.items() for value in piece.values)])

    def step(x, sides, sums, total, told, ctx):
        time.sleep(nap_s)
        near = sum(sum(side.values) for side in sides.values() if side is not None)
        beside = sums.values[0] + total.values[0] + told.values[0] + ctx.turn + near
        return Numbers([(value * 31 + ctx.partition + beside) % 997 for value in x.values])

    p = br.Program(name)
    x = p.dataset("x", value=None, partitions=partitions)
    x = p.map(lambda x, ctx: begin(ctx), x)
    one = p.dataset("one", value=Numbers([3]), partitions=1)
    with p.loop(turns):
        sides = p.exchange(x, neighbours=(-1, 1))
        sums = p.gather(gathered, p.scatter(scattered, x, to=partitions))
        total = p.all_reduce(lambda left, right: Numbers([(sum(left.values) + 3 * sum(right.values)) % 997]), x)
        told = p.broadcast(one, like=x)
        p.update(x, step, sides, sums, total, told)
        p.update(one, lambda one: Numbers([one.values[0] * 5 % 997]))
        with p.if_(p.signal(lambda one: one.values[0] % 2 == 0, one)):
            p.update(one, lambda one: Numbers([one.values[0] + 1]))
    x = p.map(lambda x: x.values, x)
    p.keep(x)
    return p, x


# Moves a shard to a worker as fast as it can, in so many threads; each line that it reads names the workers that there are from now on.
MOVER = """
import json, os, random, sys, threading, time
out = os.fdopen(os.dup(1), "w")
for descriptor in (1, 2):
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
from brambling import _native
from brambling.__main__ import Host
address, partitions, threads, seed, pause_s, workers = json.loads(sys.argv[1])
moved, asked = [0], [0]
def move(thread):
    draw = random.Random(f"{seed} {thread}")
    while True:
        to, index = draw.choice(workers), draw.randrange(partitions)
        code = _native.command(["brambling", "move", to, "--shard", f"0.{index}", "--controller", address], Host())
        asked[0] += 1
        moved[0] += code == 0
        time.sleep(pause_s if code == 0 else 0.02)
for thread in range(threads):
    threading.Thread(target=move, args=(thread,), daemon=True).start()
for line in sys.stdin:
    workers[:] = json.loads(line)
print(json.dumps((moved[0], asked[0])), file=out, flush=True)
os._exit(0)
"""


class Mover:
    """A process that orders moves of the shards of the only job that runs."""

    def __init__(self, state, address, workers, partitions, *, threads=2, seed=0, pause_s=0.0):
        given = json.dumps((address, partitions, threads, seed, pause_s, workers))
        self.process = subprocess.Popen(
            [sys.executable, "-c", MOVER, given], env=environment(state), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def among(self, workers):
        """Moves go to these workers from now on."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(workers) + "\n")
            self.process.stdin.flush()

    def end(self):
        """How many shards were moved, and how many moves were asked for: of those that make no sense nothing comes."""
        said, _ = self.process.communicate(timeout=PATIENCE_S)
        return json.loads(said)


@contextlib.contextmanager
def moving(*arguments, **how):
    mover = Mover(*arguments, **how)
    try:
        yield mover
    finally:
        if mover.process.poll() is None:
            mover.process.kill()
            mover.process.communicate()



# Runs the program again and again, each time on the cluster, until it reads a line; a line for each job.
CLIENT = """
import json, sys, threading
address, tests, given = json.loads(sys.argv[1])
sys.path.insert(0, tests)
import brambling as br
from moved import objects
asked = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), asked.set()), daemon=True).start()
p, x = objects(**given)
with br.connect(address):
    while not asked.is_set():
        try:
            line = {"values": p.run()[x]}
        except Exception as error:
            line = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(line), flush=True)
"""


class Processes:
    """A controller, and workers that come and go, whose words go to files."""

    def __init__(self, folder, workers=3, threads=1):
        self.folder, self.threads = folder, threads
        self.workers, self.others, self.count = {}, [], 0
        # A connection that is asked instead of a process of its own.
        self.control = None
        with open(folder / "controller.txt", "w") as said:
            self.controller = command(folder, "controller", "--bind", "127.0.0.1:0", stderr=said)
        self.address = address_of(self.controller)
        for _ in range(workers):
            self.join()

    def join(self):
        """One worker more; its name."""
        self.count += 1
        with open(self.folder / f"worker{self.count}.txt", "w") as said:
            worker = command(
                self.folder, "worker", "--controller", self.address, "--threads", str(self.threads), stderr=said, stdout=said)
        eventually(lambda: worker.poll() is None and worker.pid in (it["pid"] for it in self.status()["workers"]))
        name = next(it["id"] for it in self.status()["workers"] if it["pid"] == worker.pid)
        self.workers[name] = worker
        return name

    def status(self, timeout_s=PATIENCE_S):
        if self.control:
            return self.control.status()
        asked = subprocess.run(
            [sys.executable, "-m", "brambling", "status", "--controller", self.address], env=environment(self.folder),
            capture_output=True, text=True, timeout=timeout_s)
        assert asked.returncode == 0, asked.stderr
        return json.loads(asked.stdout)

    def drain(self, name, timeout_s=PATIENCE_S):
        """A worker has left, and its process has ended."""
        asked = subprocess.run(
            [sys.executable, "-m", "brambling", "drain", name, "--controller", self.address], env=environment(self.folder),
            capture_output=True, text=True, timeout=timeout_s)
        assert asked.returncode == 0, asked.stderr
        assert self.workers.pop(name).wait(timeout_s) == 0

    def client(self, **given):
        """A process that runs the program of `objects` again and again."""
        argument = json.dumps((self.address, str(Path(__file__).parent), given))
        with open(self.folder / "client.txt", "a") as said:
            client = subprocess.Popen(
                [sys.executable, "-c", CLIENT, argument], env=environment(self.folder), text=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=said)
        self.others.append(client)
        return client

    def faults(self):
        """What its processes say that none should."""
        texts = {path.name: path.read_text() for path in self.folder.glob("*.txt")}
        return {name: text for name, text in texts.items() if "a fault in brambling itself" in text}

    def end(self, timeout_s=PATIENCE_S):
        """Ends all of them as SIGTERM does; their exit codes by name."""
        for client in self.others:
            client.kill()
            client.wait()
        ended = {**self.workers, "controller": self.controller}
        for process in ended.values():
            process.send_signal(signal.SIGTERM)
        codes = {}
        for name, process in ended.items():
            try:
                codes[name] = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                codes[name] = "it does not end"
        return codes

    def kill(self):
        """Whatever they wait for."""
        for process in (*self.workers.values(), self.controller, *self.others):
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()


@contextlib.contextmanager
def processes(*arguments, **how):
    started = Processes(*arguments, **how)
    try:
        yield started
    finally:
        started.kill()


def stacks(pid):
    """Where each thread of a process is, as far as this machine tells."""
    if gdb := shutil.which("gdb"):
        with contextlib.suppress(subprocess.TimeoutExpired):
            told = subprocess.run(
                [gdb, "-p", str(pid), "-batch", "-ex", "set pagination off", "-ex", "thread apply all bt 16"],
                capture_output=True, text=True, timeout=DEBUGGER_S)
            return told.stdout
    lines = []
    for task in sorted(Path(f"/proc/{pid}/task").iterdir()):
        with contextlib.suppress(OSError):
            name, waits = ((task / about).read_text().strip() for about in ("comm", "wchan"))
            lines.append(f"{name}: {waits}")
    return "\n".join(lines)
