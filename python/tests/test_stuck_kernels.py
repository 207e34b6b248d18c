"""
Kernels that do not return when their job is over: they are interrupted, then named, and at last their worker ends with code 4 and is started again.
And what ends in the midst of kernels: workers by signals, children that kernels fork.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from processes import PATIENCE_S, command, environment, eventually, is_alive, running

import brambling as br

# Kernels that run for ever, by what ends them: an exception that comes from outside, or nothing.
ENDLESS = {
    "while True": "def k(x):\n    while True: pass",
    "nested calls": "def g(n): return n if n == 0 else g(n - 1)\ndef k(x):\n    while True: g(100)",
    "a comprehension": "def k(x): return sum(1 for _ in iter(int, 1))",
    "it swallows exceptions": "def k(x):\n    while True:\n        try:\n            while True: pass\n        except Exception: pass",
    "it swallows two of anything": (
        "def k(x):\n    for _ in range(3):\n        try:\n            while True: pass\n        except BaseException: pass\n    return x"),
    "short sleeps": "import time\ndef k(x):\n    while True: time.sleep(0.01)",
    "waits in slices": "import threading\ndef k(x):\n    e = threading.Event()\n    while not e.wait(0.05): pass",
    "numpy": "import numpy as np\ndef k(x):\n    while True: np.ones(1000).sum()",
    "per block": None,
    "in a reduction": None,
}
HEAD = "import sys, brambling as br\nwith br.connect(sys.argv[1]):\n    p = br.Program('endless'); x = p.dataset('x', value=1, partitions=4)\n"
SPECIAL = {
    "per block": "    import numpy as np\n    def k(b):\n        while True: pass\n    p.map(k, p.load(np.arange(9000.0), partitions=2))\n",
    "in a reduction": "    def k(a, b):\n        while True: pass\n    p.reduce(k, x)\n",
}


def endless(code, name=None):
    if name in SPECIAL:
        return HEAD + SPECIAL[name] + "    print('GO', flush=True); p.run()\n"
    body = "".join(f"    {line}\n" for line in code.split("\n"))
    return HEAD + body + "    p.update(x, k); print('GO', flush=True); p.run()\n"


@contextlib.contextmanager
def client(state, address, code):
    with subprocess.Popen(
        [sys.executable, "-c", code, address], env=environment(state), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "GO\n", process.stderr.read()
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def cluster(tmp_path, workers=1, threads=1, **settings):
    """A cluster of `brambling cluster`, a connection to it, and what it says."""
    state = tmp_path / "state"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(state))
        for name, value in settings.items():
            patch.setenv(name, value)
        with command(state, "cluster", "--workers", str(workers), "--threads", str(threads), "--bind", "127.0.0.1:0") as process:
            try:
                address = re.search(r"at (\S+:\d+)", process.stdout.readline())[1]
                said = []
                listener = threading.Thread(target=lambda: said.extend(iter(process.stderr.readline, "")), daemon=True)
                listener.start()
                with br.connect(address) as connected:
                    yield state, address, connected, said
            finally:
                process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=PATIENCE_S)
                process.kill()


def begins(connected):
    """Waits until a kernel of a job runs."""
    eventually(lambda: any(job["state"] == "running" for job in connected.status()["jobs"]))
    time.sleep(0.7)


def busy_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def is_quiet(pid):
    """Whether the process does nothing: its kernels have ended."""
    before = busy_s(pid)
    time.sleep(0.5)
    return busy_s(pid) - before < 0.2


def job_threads(pid):
    """Threads that run stages of jobs."""
    names = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            names.append(Path(f"/proc/{pid}/task/{task}/comm").read_text().strip())
    return [name for name in names if name.startswith("brambling-job")]


def doubles():
    p = br.Program("doubled")
    x = p.dataset("x", value=21, partitions=4)
    p.update(x, lambda x: 2 * x)
    return p.run()[x]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A cluster of two workers for tests that leave them as they were."""
    with cluster(tmp_path_factory.mktemp("two"), workers=2) as opened:
        yield opened


def leaves_no_kernels(connected, before):
    """After a job: its threads end, and nobody had to end a worker for that."""
    pids = [worker["pid"] for worker in before]
    eventually(lambda: not any(map(job_threads, pids)))
    assert all(map(is_quiet, pids))
    assert doubles() == [42] * 4
    assert [(worker["pid"], worker["stuck"]) for worker in connected.status()["workers"]] == [(pid, []) for pid in pids]


@pytest.mark.parametrize("name", ENDLESS)
def test_a_kernel_in_python_ends_when_its_client_is_gone(two, name):
    state, address, connected, _ = two
    before = connected.status()["workers"]
    with client(state, address, endless(ENDLESS[name], name)) as it:
        begins(connected)
        it.kill()
        it.wait()
        leaves_no_kernels(connected, before)


@pytest.mark.parametrize("how", ["Ctrl-C", "cancel", "failure elsewhere"])
def test_kernels_in_python_end_however_their_job_does(two, how):
    state, address, connected, _ = two
    before = connected.status()["workers"]
    code = endless(ENDLESS["while True"])
    if how == "failure elsewhere":
        # The first partition and the last are on different workers. A worker has one thread, which takes its partitions in any order:
        # none of those beside the last may run on.
        code = endless(
            "import time\ndef k(x, ctx):\n    while ctx.partition == 0: pass\n    if ctx.partition == 3:\n        time.sleep(1)\n"
            "        raise ValueError('enough')\n    return x")
    with client(state, address, code) as it:
        begins(connected)
        if how == "Ctrl-C":
            it.send_signal(signal.SIGINT)
        elif how == "cancel":
            (job,) = [job["id"] for job in connected.status()["jobs"] if job["state"] == "running"]
            cancel = [sys.executable, "-m", "brambling", "cancel", job, "--controller", address]
            subprocess.run(cancel, env=environment(state), check=True, timeout=PATIENCE_S, capture_output=True)
        said = it.communicate(timeout=PATIENCE_S)[1].splitlines()[-1]
        assert said.startswith({"Ctrl-C": "KeyboardInterrupt", "cancel": "brambling.ClusterError", "failure elsewhere": "ValueError"}.get(how, ""))\
            or "enough" in said
        leaves_no_kernels(connected, before)


STUCK = "import ctypes\ndef k(x):\n    ctypes.CDLL(None).sleep(1000); return x"
# It keeps the interpreter as well.
HELD = "import ctypes\ndef k(x):\n    ctypes.PyDLL(None).sleep(1000); return x"


@pytest.mark.parametrize("code", [STUCK, HELD], ids=["outside the interpreter", "with the interpreter"])
def test_a_kernel_that_nothing_ends_is_named_gets_no_shards_and_ends_its_worker(tmp_path, code):
    with cluster(tmp_path, workers=2, BRAMBLING_STUCK_KERNEL_S="9") as (state, address, connected, said):
        before = {worker["id"]: worker["pid"] for worker in connected.status()["workers"]}
        # On one of the two: the other goes on.
        one = code.replace("def k(x):", "def k(x, ctx):\n    if ctx.partition: return x")
        with client(state, address, endless(one)) as it:
            begins(connected)
            it.kill()
        told = {}

        def is_told():
            told.update({worker["id"]: worker["stuck"] for worker in connected.status()["workers"] if worker["stuck"]})
            return bool(told)

        eventually(is_told)
        ((worker, (stuck,)),) = told.items()
        assert stuck["stage"] == "k" and stuck["seconds"] >= 5 and stuck["job"].startswith("j")
        top = subprocess.run(
            [sys.executable, "-m", "brambling", "top", "--once", "--controller", address],
            env=environment(state), capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        assert f"{worker}: the kernel of stage `k` of job {stuck['job']} runs on, " in top.stdout
        # New jobs are on the other one.
        assert doubles() == [42] * 4
        eventually(lambda: not is_alive(before[worker]))
        pids = lambda: {it["pid"] for it in connected.status()["workers"]}
        eventually(lambda: before[worker] not in pids() and len(pids()) == 2)
        assert len(set(before.values()) & pids()) == 1
        assert doubles() == [42] * 4
    text = "".join(said)
    assert f"worker {worker}: the kernel of stage `k` of job {stuck['job']} runs on, " in text
    assert f"worker {worker} ends: the kernel of stage `k` of job {stuck['job']} ran on for 9 s after the job's end" in text
    assert f"the worker of process {before[worker]} has ended: exit status: 4" in text


def test_a_worker_of_its_own_ends_with_code_4(tmp_path, monkeypatch):
    monkeypatch.setenv("BRAMBLING_STUCK_KERNEL_S", "1")
    state = tmp_path / "state"
    with running(state, "controller", "--bind", "127.0.0.1:0") as (_, address):
        with command(state, "worker", "--controller", address, "--threads", "1") as worker:
            worker.stdout.readline()
            with client(state, address, endless(STUCK)) as it:
                time.sleep(1.5)
                it.kill()
            assert worker.wait(timeout=PATIENCE_S) == 4


# ---- signals

BUSY = {
    "busy loop": ENDLESS["while True"],
    "numpy": "import numpy as np\na = np.random.default_rng(0).random((700, 700))\ndef k(x):\n    for _ in range(1000): (a @ a).sum()\n    return x",
    "sleep": "import time\ndef k(x):\n    time.sleep(60); return x",
    "short": "def k(x): return x + 1",
    "keeps the interpreter": HELD,
    "reduces": None,
}


@pytest.mark.parametrize("name", BUSY)
def test_a_worker_that_is_asked_to_end_in_a_kernel_ends_with_code_0(tmp_path, name):
    state = tmp_path / "state"
    with running(state, "controller", "--bind", "127.0.0.1:0") as (_, address):
        for asked in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            with command(state, "worker", "--controller", address, "--threads", "2") as worker:
                assert "worker w" in worker.stdout.readline()
                body = BUSY[name]
                code = endless(body, None) if body else endless(None, "in a reduction")
                code = code.replace("p.update(x, k); ", "print(end='')\n    with p.loop(1000000): p.update(x, k)\n    ")
                with client(state, address, code):
                    time.sleep(1.2)
                    worker.send_signal(asked)
                    said = worker.communicate(timeout=PATIENCE_S)
                    assert worker.returncode == 0, said


# ---- this process

ENDLESS_HERE = """
import brambling as br
p = br.Program("endless"); x = p.dataset("x", value=1, partitions=2)
{code}
p.update(x, k); print("GO", flush=True)
try:
    p.run(threads=2)
except KeyboardInterrupt:
    print("interrupted", flush=True)
p = br.Program("next"); x = p.dataset("x", value=1); p.update(x, lambda x: x + 1); print(p.run()[x], flush=True)
"""


@pytest.mark.parametrize("name", [name for name, code in ENDLESS.items() if code and "two of anything" not in name])
def test_ctrl_c_ends_a_kernel_in_this_process(name):
    code = ENDLESS_HERE.format(code=ENDLESS[name])
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as it:
        assert it.stdout.readline() == "GO\n"
        time.sleep(0.5)
        it.send_signal(signal.SIGINT)
        said, errors = it.communicate(timeout=PATIENCE_S)
    assert said == "interrupted\n2\n", errors


# ---- forks

FORKS = {
    "returns": ("return x + 1", 0),
    "raises": ("raise ValueError('in the child')", 1),
    "leaves": ("raise SystemExit(7)", 7),
    "prints": ("print('in the child'); return x", 0),
}
IN_CHILD = """
import os, sys, brambling as br
def k(x, ctx):
    child = os.fork()
    if child == 0:
        {body}
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
p = br.Program("forks"); x = p.dataset("x", value=1, partitions=3)
{statement}
if len(sys.argv) > 1: br.connect(sys.argv[1])
print(p.run()[{result}], flush=True)
"""


@pytest.mark.parametrize("where", ["here", "there"])
@pytest.mark.parametrize("how", FORKS)
def test_a_child_that_returns_from_its_kernel_ends(shared, how, where):
    body, code = FORKS[how]
    script = IN_CHILD.format(body=body, statement="p.update(x, k)", result="x")
    arguments = [shared] if where == "there" else []
    ran = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == str([code] * 3)
    if where == "here" and how == "raises":
        assert "ValueError: in the child" in ran.stderr
    # Nothing of it is left.
    with br.connect(shared) as connected:
        for worker in connected.status()["workers"]:
            children = subprocess.run(["ps", "--ppid", str(worker["pid"]), "-o", "pid="], capture_output=True, text=True, check=False)
            assert children.stdout.strip() == ""


def test_a_child_that_is_not_waited_for_ends_too(shared):
    script = IN_CHILD.replace("_, status = os.waitpid(child, 0)", "open(sys.argv[2], 'a').write(f'{{child}}\\n')").replace(
        "return os.waitstatus_to_exitcode(status)", "return x").format(body="return x", statement="p.update(x, k)", result="x")
    with pytest.MonkeyPatch.context():
        path = f"/tmp/brambling-forks-{os.getpid()}"
        script = script.replace("sys.argv[2]", repr(path))
        try:
            ran = subprocess.run([sys.executable, "-c", script, shared], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            assert ran.stdout == "[1, 1, 1]\n", ran.stderr
            children = [int(line) for line in Path(path).read_text().split()]
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)
    assert len(children) == 3
    eventually(lambda: not any(map(is_alive, children)))
