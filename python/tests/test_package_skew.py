"""
Workers whose packages differ: whatever way a kernel comes to a package, results of two versions are not mixed. Each way is tried with folders of
packages of which each of two workers has its own; the oracle is the same cluster with equal folders, where everything runs.
"""

import contextlib
import subprocess
import sys

import pytest
from processes import PATIENCE_S, environment, eventually, running

import brambling as br

PACKAGES = {
    # A version, none, and one that only its distribution knows.
    "vz.py": "__version__ = '{n}.0'\ndef f(x): return x + {n}\n",
    "noversion.py": "def f(x): return x + {n}\n",
    "lazy.py": "__version__ = '5'\ndef g(x):\n    import vz\n    return vz.f(x)\n",
    "front.py": "__version__ = '5'\nimport vz\ndef g(x): return vz.f(x)\n",
    "deep/__init__.py": "",
    "deep/inner.py": "def f(x): return x + {n}\n",
    "dist.py": "def f(x): return x + {n}\n",
    "dist-{n}.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: dist\nVersion: {n}.0\n",
    "fallback.py": "__version__ = '1'\ntry:\n    from fast import f\nexcept ImportError:\n    def f(x): return x + 100\n",
    "same.py": "__version__ = '3'\ndef f(x): return x + 7\n",
    "sametoo.py": "def f(x): return x + 7\n",
}
FAST = {"fast.py": "__version__ = '1.0'\ndef f(x): return x + 1\n"}

WAYS = {
    "imported in the kernel": ("def k(x):\n    import vz\n    return vz.f(x)", "vz", "version"),
    "imported above": ("import vz\nk = lambda x: vz.f(x)", "vz", "version"),
    "importlib": ("def k(x):\n    import importlib\n    return importlib.import_module('v' + 'z').f(x)", "vz", "version"),
    "__import__": ("def k(x): return __import__('vz').f(x)", "vz", "version"),
    "through another, when it is called": ("import lazy\nk = lambda x: lazy.g(x)", "vz", "version"),
    "through another, when it is imported": ("def k(x):\n    import front\n    return front.g(x)", "vz", "version"),
    "without a version, above": ("import noversion\nk = lambda x: noversion.f(x)", "noversion", "source"),
    "without a version, in the kernel": ("def k(x):\n    from noversion import f\n    return f(x)", "noversion", "source"),
    "a module of a package without a version": ("def k(x):\n    from deep.inner import f\n    return f(x)", "deep.inner", "source"),
    "the version of a distribution": ("def k(x):\n    import dist\n    return dist.f(x)", "dist", "version"),
    "what one worker lacks": ("def k(x):\n    import fallback\n    return fallback.f(x)", "fast", "not installed"),
    "in the last of many turns": ("def k(x):\n    if x < 50: return x + 1\n    import vz\n    return vz.f(x)", "vz", "version"),
    "in a reduction": ("def k(x): return x\ndef op(a, b):\n    import vz\n    return vz.f(a) + b", "vz", "version"),
    "in a thread of the kernel": (
        "def k(x):\n    import threading\n    got = []\n    def run():\n        import vz\n        got.append(vz.f(x))\n"
        "    t = threading.Thread(target=run); t.start(); t.join()\n    return got[0]", "vz", "version"),
}
HEAD = """
import sys, numpy as np, brambling as br
"""
TAIL = """
with br.connect(sys.argv[1]):
    p = br.Program("skew")
    x = p.dataset("x", value=1, partitions=6)
    with p.loop(60): p.update(x, k)
    if "op" in globals():
        # Blocks of one partition are combined where it is.
        p.keep(p.reduce(op, p.map(lambda block: len(block), p.load(np.zeros(40_000), partitions=4))))
    print(p.run()[x])
"""


def folder(path, n, files):
    for name, text in files.items():
        file = path / "site-packages" / name.format(n=n)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.format(n=n), encoding="utf-8")
    return str(path / "site-packages")


@contextlib.contextmanager
def workers_with(tmp_path, first, second):
    """A cluster of two workers, each with its own folder of packages."""
    state = tmp_path / "state"
    with running(state, "controller", "--bind", "127.0.0.1:0") as (_, address):
        with contextlib.ExitStack() as stack:
            for packages in (first, second):
                env = environment(state) | {"PYTHONPATH": packages}
                worker = stack.enter_context(subprocess.Popen(
                    [sys.executable, "-m", "brambling", "worker", "--controller", address, "--threads", "1"],
                    env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
                stack.callback(worker.terminate)
                assert "worker w" in worker.stdout.readline()
            yield state, address


def run(state, address, packages, code):
    ran = subprocess.run(
        [sys.executable, "-c", HEAD + code + TAIL, address], env=environment(state) | {"PYTHONPATH": packages},
        capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return ran.stdout.strip(), (ran.stderr.strip().splitlines() or [""])[-1]


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_a_package_that_differs_is_refused_with_both(tmp_path, way):
    first, second = folder(tmp_path / "a", 1, PACKAGES | FAST), folder(tmp_path / "b", 100, PACKAGES)
    code, package, kind = WAYS[way]
    with workers_with(tmp_path, first, second) as (state, address):
        said, told = run(state, address, first, code)
    assert said == ""
    if "the program was built with" in told:
        # Known before anything ran: the client names it.
        assert f"{package} " in told and "and here is" in told and kind != "not installed"
        return
    one = {"version": f"`{package}` 1.0 on w", "source": f"`{package}` source ", "not installed": "`fast` not installed on w"}[kind]
    other = {"version": f"`{package}` 100.0 on w", "source": " on w", "not installed": "`fast` 1.0 on w"}[kind]
    assert "VersionMismatch" in told and one in told and other in told


def test_who_has_loaded_it_before_is_refused_as_well(tmp_path):
    first, second = folder(tmp_path / "a", 1, PACKAGES | FAST), folder(tmp_path / "b", 100, PACKAGES)
    with workers_with(tmp_path, first, second) as (state, address):
        for _ in range(2):
            said, told = run(state, address, first, WAYS["imported in the kernel"][0])
            assert said == "" and "`vz` 1" in told and "VersionMismatch" in told


@pytest.fixture(scope="module")
def alike(tmp_path_factory):
    """Two workers with the same packages in different folders."""
    path = tmp_path_factory.mktemp("alike")
    first, second = (folder(path / name, 1, PACKAGES | FAST) for name in "ab")
    with workers_with(path, first, second) as (state, address):
        yield state, address, first


@pytest.mark.parametrize("way", WAYS)
def test_workers_that_are_alike_run_it(alike, way):
    state, address, packages = alike
    said, told = run(state, address, packages, WAYS[way][0])
    assert said.startswith("[") and len(set(said.strip("[]").split(", "))) == 1, (said, told)


def test_what_no_kernel_has_loaded_may_differ(tmp_path):
    first, second = folder(tmp_path / "a", 1, PACKAGES | FAST), folder(tmp_path / "b", 100, PACKAGES)
    with workers_with(tmp_path, first, second) as (state, address):
        for code in ("k = lambda x: x + 1", "import same\nk = lambda x: same.f(x)", "def k(x):\n    import sametoo\n    return sametoo.f(x)"):
            said, told = run(state, address, first, code)
            assert said.startswith("["), told


def test_a_client_with_another_source_is_refused(tmp_path):
    first, second = folder(tmp_path / "a", 1, PACKAGES), folder(tmp_path / "b", 2, PACKAGES)
    with workers_with(tmp_path, first, first) as (state, address):
        said, told = run(state, address, second, WAYS["without a version, above"][0])
        assert said == "" and "built with noversion source" in told and "and here is noversion source" in told


def test_a_worker_that_comes_later_is_compared(tmp_path):
    first, second = folder(tmp_path / "a", 1, PACKAGES), folder(tmp_path / "b", 100, PACKAGES)
    code = "def k(x):\n    import time, vz\n    time.sleep(0.05)\n    return vz.f(x) % 1000\n"
    tail = TAIL.replace("p.loop(60)", "p.loop(100000)")
    with workers_with(tmp_path, first, first) as (state, address):
        with subprocess.Popen(
            [sys.executable, "-c", HEAD + code + tail, address], env=environment(state) | {"PYTHONPATH": first},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as client:
            with br_status(state, address) as cluster:
                eventually(lambda: any(job["state"] == "running" and job["position"] > 20 for job in cluster.status()["jobs"]))
            with subprocess.Popen(
                [sys.executable, "-m", "brambling", "worker", "--controller", address, "--threads", "1"],
                env=environment(state) | {"PYTHONPATH": second}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            ) as late:
                try:
                    said, told = client.communicate(timeout=PATIENCE_S)
                finally:
                    late.terminate()
    assert said == "" and "VersionMismatch" in told.splitlines()[-1] and "on w3" in told.splitlines()[-1]


@contextlib.contextmanager
def br_status(state, address):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(state))
        with br.connect(address) as cluster:
            yield cluster


def test_models_and_kernels_that_load_nothing_say_nothing(shared):
    # One word for each worker and job, and none for models: nothing in a task's way.
    with br.connect(shared):
        for _ in range(3):
            p = br.Program("plain")
            x = p.dataset("x", value=1, partitions=4)
            with p.loop(2000):
                p.update(x, lambda x: x + 1)
            assert p.run()[x] == [2001] * 4
