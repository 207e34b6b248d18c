"""Children that kernels fork, and that live on when their worker dies: the death is heard all the same."""

import contextlib
import json
import os
import re
import signal
import threading
import time
from pathlib import Path

import pytest
from processes import PATIENCE_S, command, doubled, eventually, running

import brambling as br

# Far less than the child lives, and far more than it takes.
HEARD_WITHIN_S = 10
CHILD_S = 60


def forked():
    """The child of os.fork, which goes on on its own."""
    import os
    import time

    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    return child


def processed():
    """One of multiprocessing's, by fork."""
    import multiprocessing
    import time

    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,), daemon=False)
    process.start()
    return process.pid


def executed():
    """Another program, with whatever descriptors are not closed by its execution."""
    import subprocess

    return subprocess.Popen(["sleep", "60"], close_fds=False).pid


def executed_after_fork():
    """The same where Python cannot do it without fork(2)."""
    import os
    import subprocess

    return subprocess.Popen(["sleep", "60"], close_fds=False, preexec_fn=os.getpid).pid


def deaths(state, address):
    with command(state, "status", "--controller", address) as told:
        return json.loads(told.communicate(timeout=PATIENCE_S)[0])["deaths"]


def sockets(pid):
    """Which sockets a process has, as the system numbers them."""
    found = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found |= set(re.findall(r"socket:\[\d+\]", os.readlink(descriptor)))
    return found


@pytest.mark.parametrize("attached", [True, False], ids=["cluster", "worker"])
@pytest.mark.parametrize("begin", [forked, processed, executed, executed_after_fork], ids=lambda begin: begin.__name__)
def test_a_death_is_heard_although_a_child_lives_on(tmp_path, monkeypatch, begin, attached):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    children = tmp_path / "children"
    children.mkdir()

    def begins(x, ctx, folder=str(children), begin=begin):
        import os
        from pathlib import Path

        child = begin()
        Path(folder, f"{os.getpid()}-{child}").touch()
        return x

    with contextlib.ExitStack() as stack:
        if attached:
            _, address = stack.enter_context(running(tmp_path, "cluster", "--workers", "2", "--threads", "1", "--bind", "127.0.0.1:0"))
        else:
            _, address = stack.enter_context(running(tmp_path, "controller", "--bind", "127.0.0.1:0"))
            for _ in range(2):
                stack.enter_context(running(tmp_path, "worker", "--controller", address, "--threads", "1"))
        cluster = stack.enter_context(br.connect(address))
        victim = cluster.status()["workers"][1]
        p = br.Program("forks")
        x = p.dataset("x", value=0, partitions=2)
        p.update(x, begins)
        heard = tmp_path / "heard"

        def runs(x, total, heard=str(heard)):
            import os

            if os.path.exists(heard):
                raise RuntimeError("its worker's death was heard")
            time.sleep(0.001)
            return total

        with p.loop(1_000_000):
            p.update(x, runs, p.all_reduce("sum", x))
        took = []

        def strike():
            eventually(lambda: len(list(children.iterdir())) == 2)
            time.sleep(0.5)
            died = time.monotonic()
            os.kill(victim["pid"], signal.SIGKILL)
            eventually(lambda: [it["pid"] for it in deaths(tmp_path, address)] == [victim["pid"]])
            took.append(time.monotonic() - died)
            heard.touch()

        striking = threading.Thread(target=strike)
        striking.start()
        pids = []
        try:
            # It begins again on the other worker, and would run for long.
            with pytest.raises(Exception, match="its worker's death was heard"):
                p.run()
            striking.join(PATIENCE_S)
            assert took[0] < HEARD_WITHIN_S
            pids = [tuple(map(int, it.name.split("-"))) for it in children.iterdir()]
            for worker, child in pids:
                os.kill(child, 0)  # It lives, and of its worker's sockets has the one that is connected to nobody.
                if worker != victim["pid"]:
                    assert len(sockets(child) & sockets(worker)) <= 1
            assert doubled().run()["x"] == [42] * 4
        finally:
            for _, child in pids or [tuple(map(int, it.name.split("-"))) for it in children.iterdir()]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)


def test_links_of_the_parent_go_on(tmp_path, monkeypatch):
    """The child closes what it has of them and nothing else, also when it ends as Python does."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def forks(x):
        import multiprocessing

        process = multiprocessing.get_context("fork").Process(target=int)
        process.start()
        process.join()
        assert process.exitcode == 0
        return x + 1

    with running(tmp_path, "cluster", "--workers", "2", "--threads", "1", "--bind", "127.0.0.1:0") as (_, address), br.connect(address):
        p = br.Program("forks")
        x = p.dataset("x", value=0, partitions=4)
        with p.loop(5):
            p.update(x, forks)
            p.update(x, lambda x, total: total // 4, p.all_reduce("sum", x))
        assert p.run()["x"] == [5] * 4
