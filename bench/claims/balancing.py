"""
Whether a job gets over a worker that becomes slow: four workers of one thread with 40 % of a core each, one falls to 20 %.

Prints JSON: `ms_per_iteration`, the median of iterations that begin 5 s or 10 iterations after the fall, whichever is later;
`allowed_ms_per_iteration`, the CPU time that the workers used for an iteration, over the cores that are left, 1.4: threads that wait sleep and use
none, and `kernels_share_of_cpu` tells how much of it was the kernels';
`unmoved_longest_gap_ms`, the longest time in which a shard that never moved ran nothing, from the fall on. The results are those of one process,
to the last bit, or this fails.
"""

import argparse
import contextlib
import json
import math
import os
import statistics
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "python/tests"))
from cgroups import NoCgroupsError, quotas  # noqa: E402
from processes import PATIENCE_S, command, eventually, running  # noqa: E402

import brambling as br  # noqa: E402

WORKERS = 4
SHARE, FALLS_TO = 0.4, 0.2
FALLEN = 1
BEFORE_S, SETTLING_S, AFTER_S = 5.0, 5.0, 8.0
SETTLING_ITERATIONS = 10
RECORD = "<IIIdd"


def program(partitions, turns, spins, log):
    """Iterations in which all shards work the same and each needs the sum of all; what each did is noted in files of `log`."""

    def work(x, total, ctx):
        begun = time.thread_time()
        busy = 0
        for at in range(spins):
            busy ^= at
        x = 0.75 * x + 0.25 * math.sin(total + ctx.partition)
        if log:
            took_s = time.thread_time() - begun
            record = struct.pack(RECORD, ctx.turn, ctx.partition, os.getpid(), time.monotonic(), took_s)
            file = os.open(f"{log}/{os.getpid()}", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
            os.write(file, record)
            os.close(file)
        return x

    p = br.Program("balancing")
    x = p.dataset("x", value=1.0, partitions=partitions)
    with p.loop(turns):
        p.update(x, work, p.all_reduce("sum", x))
    return p


def spins_of(task_s):
    """How often the kernel goes round in so much CPU time."""
    spins, best = 100_000, math.inf
    for _ in range(7):
        begun = time.thread_time()
        busy = 0
        for at in range(spins):
            busy ^= at
        best = min(best, time.thread_time() - begun)
    return round(spins * task_s / best)


@contextlib.contextmanager
def workers(state, address, groups):
    """A worker in each group; of those that share a CPU all have their quota."""
    cpus = sorted(os.sched_getaffinity(0))
    arguments = ("worker", "--controller", address, "--threads", "1", "--memory", "1GB")
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(command(state, *arguments)) for _ in groups]
        try:
            for worker in started:
                line = worker.stdout.readline()
                assert line.startswith("worker w"), line + worker.stderr.read()
            for index, (worker, group) in enumerate(zip(started, groups, strict=True)):
                for thread in os.listdir(f"/proc/{worker.pid}/task"):
                    os.sched_setaffinity(int(thread), {cpus[index % len(cpus)]})
                group.add(worker.pid)
            yield started
        finally:
            for worker in started:
                worker.terminate()
            for worker in started:
                worker.communicate(timeout=PATIENCE_S)


class CpuTimes:
    """The CPU time of processes, as it grows."""

    def __init__(self, processes):
        self.processes, self.samples, self.ends = processes, [], threading.Event()
        self.thread = threading.Thread(target=self.sample)
        self.thread.start()

    def sample(self):
        while not self.ends.wait(0.2):
            ticks = 0
            for process in self.processes:
                fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
                ticks += int(fields[11]) + int(fields[12])
            self.samples.append((time.monotonic(), ticks / os.sysconf("SC_CLK_TCK")))

    def stop(self):
        """A function of two moments: the CPU time between them."""
        self.ends.set()
        self.thread.join()
        return lambda begin, end: self.until(end) - self.until(begin)

    def until(self, moment):
        for (before, used), (after, then_used) in zip(self.samples, self.samples[1:], strict=False):
            if before <= moment <= after:
                return used + (then_used - used) * (moment - before) / (after - before)
        return self.samples[-1][1]


def records(log):
    for file in Path(log).iterdir():
        yield from struct.iter_unpack(RECORD, file.read_bytes())


def figures(log, fell, used_s):
    """What the notes of all tasks tell, and the CPU time of the workers between two moments."""
    by_turn, by_shard = {}, {}
    for turn, partition, pid, at, took_s in records(log):
        by_turn.setdefault(turn, []).append((at, took_s))
        by_shard.setdefault(partition, []).append((at, pid))
    ends = {turn: max(at for at, _ in by_turn[turn]) for turn in sorted(by_turn)}
    turns = [(ends[turn - 1], ends[turn], sum(took for _, took in by_turn[turn])) for turn in ends if turn > 0]
    begun_later = [turn for turn in turns if turn[0] >= fell]
    settled_at = max(fell + SETTLING_S, begun_later[SETTLING_ITERATIONS][0])
    after = [turn for turn in turns if turn[0] >= settled_at]
    before = [turn for turn in turns if turn[1] <= fell and turn[0] >= fell - BEFORE_S / 2]
    assert len(after) >= 10 and before, (len(after), len(before))
    cores = WORKERS * SHARE - SHARE + FALLS_TO

    def median_ms(turns):
        return 1e3 * statistics.median(end - begin for begin, end, _ in turns)

    def allowed_ms(turns, cores):
        return 1e3 * used_s(turns[0][0], turns[-1][1]) / len(turns) / cores

    def kernels_share(turns):
        return sum(took for *_, took in turns) / used_s(turns[0][0], turns[-1][1])

    unmoved = [sorted(at for at, _ in ran) for ran in by_shard.values() if len({pid for _, pid in ran}) == 1]
    gaps = [later - at for ran in unmoved for at, later in zip(ran, ran[1:], strict=False) if later >= fell]
    moves = [at for ran in by_shard.values() for at in moments_of_moves(sorted(ran))]
    last = [ran[-1][1] for ran in (sorted(ran) for ran in by_shard.values())]
    return {
        "ms_per_iteration": median_ms(after),
        "allowed_ms_per_iteration": allowed_ms(after, cores),
        "unmoved_longest_gap_ms": 1e3 * max(gaps, default=0.0),
        "moves": {
            "before": sum(at < fell for at in moves),
            "settling": sum(fell <= at < settled_at for at in moves),
            "after": sum(at >= settled_at for at in moves),
        },
        "before": {"ms_per_iteration": median_ms(before), "allowed_ms_per_iteration": allowed_ms(before, WORKERS * SHARE)},
        "by_second": [round(1e3 * (end - begin)) for begin, end in by_seconds(begun_later)],
        "shards_at_the_end": sorted(map(last.count, set(last))),
        "iterations": len(after),
        "kernels_share_of_cpu": kernels_share(after),
    }


def moments_of_moves(ran):
    """When a shard first ran in another process than before."""
    return [at for (_, before), (at, now) in zip(ran, ran[1:], strict=False) if before != now]


def by_seconds(turns):
    """An iteration of each second."""
    seen = set()
    for begin, end, _ in turns:
        if int(begin - turns[0][0]) not in seen:
            seen.add(int(begin - turns[0][0]))
            yield begin, end


def measure(state, shards, task_s, options):
    iteration_s = shards * task_s / (WORKERS * SHARE)
    settling_s = max(SETTLING_S, SETTLING_ITERATIONS * 2 * iteration_s)
    turns = math.ceil((BEFORE_S + 2 * settling_s + 1.5 * AFTER_S) / iteration_s)
    spins = spins_of(task_s)
    groups = quotas(WORKERS, SHARE)
    fell = []
    try:
        with running(state, "controller", "--bind", "127.0.0.1:0", *options) as (_, address), \
                workers(state, address, groups) as processes, br.connect(address), \
                tempfile.TemporaryDirectory() as log:

            def fall():
                eventually(lambda: any(Path(log).iterdir()))
                time.sleep(BEFORE_S)
                groups[FALLEN].set(FALLS_TO)
                fell.append(time.monotonic())

            falling = threading.Thread(target=fall)
            falling.start()
            used = CpuTimes(processes)
            result = program(shards, turns, spins, log).run()
            falling.join()
            found = figures(log, fell[0], used.stop())
            values = result["x"]
    finally:
        for group in groups:
            group.remove()
    expected = program(shards, turns, 0, None).run(threads=1)["x"]
    assert [x.hex() for x in values] == [x.hex() for x in expected], "not the bits of one process"
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=80)
    parser.add_argument("--task-ms", type=float, default=8.0)
    parser.add_argument("--no-balance", action="store_true", help="what happens without")
    arguments = parser.parse_args()
    options = ["--no-balance"] if arguments.no_balance else []
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state
        try:
            found = measure(state, arguments.shards, arguments.task_ms / 1e3, options)
        except NoCgroupsError as error:
            sys.exit(f"skipped: {error}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
