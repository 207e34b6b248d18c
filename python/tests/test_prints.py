"""What kernels print on workers: it reaches the client of their job, and nobody else."""

import contextlib
import io
import logging
import multiprocessing
import os
import re
import subprocess
import sys
import threading
import time

import pytest
from processes import PATIENCE_S, command, doubled, environment, eventually, running
from test_commands import said, script, submitted

import brambling as br
from brambling import _prints, _progress


def program(kernel, partitions=4):
    """With one stage, `count`."""
    kernel.__name__ = "count"
    p = br.Program("prints")
    p.keep(p.map(kernel, p.dataset("x", value=0, partitions=partitions)))
    return p


@contextlib.contextmanager
def started(state, *arguments):
    """A process of a cluster, which ends whatever becomes of the test."""
    with command(state, *arguments) as process:
        try:
            yield process
        finally:
            process.terminate()


def printed(address, kernel, capsys, **how):
    """Lines of standard output and of errors after a run."""
    with br.connect(address):
        program(kernel, **how).run()
    shown = capsys.readouterr()
    return shown.out.splitlines(), shown.err.splitlines()


def test_lines_say_which_worker_and_stage_they_come_from(shared, capsys):
    def kernel(x, ctx):
        print("partition", ctx.partition)
        sys.stderr.write(f"trouble in {ctx.partition}\n")
        logging.getLogger("kernel").warning("logged in %d", ctx.partition)
        print("two\nlines", "\ta tab", "\x1b[31mred\x1b[0m", "ü")
        return x

    out, err = printed(shared, kernel, capsys)
    of_worker = [[line for line in out if line.startswith(f"[{worker}, count] ")] for worker in ("w1", "w2")]
    assert sum(map(len, of_worker)) == len(out) == 12
    # In the order in which they were printed there, and what would drive a terminal is gone.
    for lines in of_worker:
        for at in range(0, len(lines), 3):
            first, *rest = (line.partition("] ")[2] for line in lines[at:at + 3])
            assert re.fullmatch(r"partition \d", first)
            assert rest == ["two", "lines \ta tab [31mred[0m ü"]
    assert {line.partition("] ")[2] for line in out if "partition" in line} == {f"partition {at}" for at in range(4)}
    told = {re.sub(r"^\[w[12], count\] ", "", line) for line in err}
    assert told == {f"{what} in {at}" for what in ("trouble", "logged") for at in range(4)}


def test_a_line_without_an_end_comes_with_the_end_of_the_job(shared, capsys):
    def kernel(x):
        print(".", end="", flush=True)
        return x

    out, err = printed(shared, kernel, capsys)
    assert (sorted(out), err) == (["[w1, count] ..", "[w2, count] .."], [])


def test_all_functions_of_a_program_print(shared, capsys):
    def noisy(name):
        def f(*values):
            print(name, "runs")
            return values[0]
        return f

    p = br.Program("noisy")
    x = p.dataset("x", value=[1, 2], partitions=4)
    p.update(x, noisy("update"))
    p.keep(p.reduce(noisy("combine"), x))
    p.keep(p.shuffle(x, key=noisy("key")))
    with br.connect(shared):
        p.run()
    out = capsys.readouterr().out.splitlines()
    told = {re.sub(r"\[w\d, .+?\] (\w+) runs", r"\1", line) for line in out}
    assert told == {"update", "combine", "key"}


def test_threads_that_a_kernel_starts_print_for_it(shared, capsys):
    def kernel(x):
        inner = threading.Thread(target=lambda: print("inner"))
        outer = threading.Thread(target=lambda: (print("outer"), inner.start(), inner.join()))
        outer.start()
        outer.join()
        return x

    out, _ = printed(shared, kernel, capsys, partitions=1)
    assert out == ["[w1, count] outer", "[w1, count] inner"] or out == ["[w2, count] outer", "[w2, count] inner"]


def test_a_program_that_a_kernel_runs_prints_for_it(shared, capsys):
    def within(x):
        print("inner")

    def inner():
        p = br.Program("inner")
        p.map(within, p.dataset("y", value=0, partitions=1))
        p.run(threads=1)

    def kernel(x):
        print("outer")
        thread = threading.Thread(target=inner)
        thread.start()
        thread.join()
        return x

    out, _ = printed(shared, kernel, capsys, partitions=1)
    assert [line.partition(", ")[2] for line in out] == ["count] outer", "within] inner"]


class Loud:
    def __init__(self, x):
        self.x = x

    def __reduce__(self):
        return made, (self.x,)


def made(x):
    print("made of", x)
    return Loud(x)


def test_what_prints_while_the_program_is_built_belongs_to_no_stage(shared, capsys):
    p = br.Program("loud")
    loud = Loud(5)
    p.keep(p.map(lambda x: loud.x, p.dataset("x", value=0, partitions=4)))
    with br.connect(shared):
        p.run()
    assert sorted(capsys.readouterr().out.splitlines()) == ["[w1] made of 5", "[w2] made of 5"]


def test_what_was_printed_before_a_failure_is_there(shared, capsys):
    def kernel(x, ctx):
        print("begins", ctx.partition)
        print("no end", end="")
        raise ValueError("on purpose")

    with br.connect(shared), pytest.raises(br.KernelError, match="on purpose") as caught:
        program(kernel).run()
    failed = caught.value
    worker = re.search(r"on worker (w\d)", str(failed))[1]
    # Another partition may have gone on with the line, before the worker heard of the job's end.
    there = [line.partition("] ")[2] for line in capsys.readouterr().out.splitlines() if line.startswith(f"[{worker}, count] ")]
    assert f"begins {failed.partition}\nno end" in "\n".join(there)


def test_lines_come_while_the_job_runs(shared, tmp_path):
    def kernel(x):
        for gate in ("first", "second"):
            print(gate)
            deadline = time.monotonic() + 20
            while not (tmp_path / gate).exists():
                assert time.monotonic() < deadline, f"nobody has seen the {gate} line"
                time.sleep(0.01)
        return x

    class Opens(io.StringIO):
        def write(self, text):
            for gate in ("first", "second"):
                if gate in text:
                    (tmp_path / gate).touch()
            return super().write(text)

    # As a notebook does: what replaces sys.stdout has it, not the process's own output.
    opens, before = Opens(), sys.stdout
    sys.stdout = opens
    try:
        with br.connect(shared):
            program(kernel, partitions=1).run()
    finally:
        sys.stdout = before
    assert re.sub(r"\[w\d, count\] ", "", opens.getvalue()) == "first\nsecond\n"


SCRIPT = """
import sys, time
import brambling as br
def kernel(x, ctx):
    for turn in range(20):
        print(f"job {sys_name} line {turn}")
        time.sleep(0.005)
    return x
sys_name = sys.argv[1]
p = br.Program(sys_name)
kernel.__name__ = f"stage of {sys_name}"
p.keep(p.map(kernel, p.dataset("x", value=0, partitions=2)))
br.connect(sys.argv[2])
p.run()
"""


def test_jobs_that_run_at_once_do_not_mix(shared, tmp_path):
    path = script(tmp_path, SCRIPT)
    clients = {
        name: subprocess.Popen([sys.executable, path, name, shared], env=dict(os.environ), stdout=subprocess.PIPE, text=True)
        for name in ("ada", "bob", "eve")}
    for name, client in clients.items():
        out, _ = client.communicate(timeout=PATIENCE_S)
        lines = sorted(out.splitlines())
        assert lines == sorted(f"[{worker}, stage of {name}] job {name} line {turn}" for worker in ("w1", "w2") for turn in range(20))


def test_the_log_of_a_script_has_what_its_kernels_print(shared, tmp_path):
    text = SCRIPT.replace("br.connect(sys.argv[2])\n", "print('begins')\n") + "print('ends')\n"
    name = submitted(shared, script(tmp_path, text), "ada")
    log = said("logs", name, "--follow", "--controller", shared).splitlines()
    assert (log[0], log[-1]) == ("begins", "ends")
    assert sorted(log[1:-1]) == sorted(f"[{worker}, stage of ada] job ada line {turn}" for worker in ("w1", "w2") for turn in range(20))


def test_what_was_printed_on_a_worker_that_leaves_is_there(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def step(x, ctx):
        print(f"turn {ctx.turn} of {ctx.partition}", end="")
        time.sleep(0.001)
        print()
        # A line that does not end before its worker has left.
        print(".", end="", file=sys.stderr)
        return x + 1

    p = br.Program("long")
    x = p.dataset("x", value=0, partitions=4)
    with p.loop(500):
        p.update(x, step)
    arguments = ("cluster", "--workers", "2", "--threads", "1", "--no-balance", "--bind", "127.0.0.1:0")
    with running(tmp_path, *arguments) as (_, address), br.connect(address) as cluster:
        late = [sys.executable, "-c", "import sys, time; from brambling.__main__ import main; time.sleep(0.3); sys.exit(main(sys.argv[1:]))"]
        draining = subprocess.Popen([*late, "drain", "w2", "--controller", address], env=environment(tmp_path))
        assert p.run()[x] == [500] * 4
        assert draining.wait(PATIENCE_S) == 0
        assert [worker["id"] for worker in cluster.status()["workers"]] == ["w1"]
    shown = capsys.readouterr()
    lines = [line.partition("] ") for line in shown.out.splitlines()]
    assert sum(map(len, re.findall(r"^\[w[12], step\] (\.+)$", shown.err, re.MULTILINE))) == 4 * 500
    assert {mark for mark, _, _ in lines} == {"[w1, step", "[w2, step"}
    assert sorted(text for _, _, text in lines) == sorted(f"turn {turn} of {at}" for turn in range(500) for at in range(4))


FLOOD = 400_000


def flooding(x):
    for number in range(FLOOD):
        print(f"line {number:50}")
    print("x" * 100_000)
    return x


def test_a_flood_is_bounded_and_told(shared):
    class Slow(io.StringIO):
        def write(self, text):
            time.sleep(0.05)
            return super().write(text)

    slow, before = Slow(), sys.stdout
    sys.stdout = slow
    try:
        with br.connect(shared):
            program(flooding, partitions=1).run()
    finally:
        sys.stdout = before
    lines = slow.getvalue().splitlines()
    left_out = [int(line.split()[2].replace(",", "")) for line in lines if re.fullmatch(r"\[w\d\] \.\.\. [\d,]+ lines left out", line)]
    assert left_out and max(left_out) > 1_000
    # Each line is shown once, or counted.
    assert sum(left_out) + len(lines) - len(left_out) == FLOOD + 1
    numbers = [int(line.split()[-1]) for line in lines if "] line " in line]
    assert numbers == sorted(set(numbers))
    # The last ones are there, and the longest is cut.
    assert numbers[-1] == FLOOD - 1
    assert re.fullmatch(r"\[w\d, count\] x{8192} \.\.\. 91,808 bytes left out", lines[-1])


def test_a_client_that_does_not_read_holds_up_no_kernel_but_its_own_end(shared, tmp_path):
    done = tmp_path / "done"
    text = f"""
import pathlib, sys
import brambling as br
def kernel(x):
    for number in range({FLOOD}):
        print(f"line {{number:50}}")
    pathlib.Path({str(done)!r}).touch()
    return x
p = br.Program("flood")
p.keep(p.map(kernel, p.dataset("x", value=0, partitions=1)))
br.connect(sys.argv[1])
p.run()
"""
    with subprocess.Popen([sys.executable, script(tmp_path, text), shared], stdout=subprocess.PIPE, text=True) as client:
        # Nobody reads the pipe, which holds less than that.
        eventually(done.exists)
        assert client.poll() is None
        assert "lines left out" in client.communicate(timeout=PATIENCE_S)[0]


def test_what_belongs_to_no_job_stays_where_the_worker_was_started(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def kernel(x):
        print("the kernel")
        os.write(1, b"the process\n")
        child = multiprocessing.get_context("fork").Process(target=lambda: print("a child", flush=True))
        child.start()
        child.join()
        late = threading.Thread(target=lambda: (time.sleep(0.5), print("too late", flush=True)))
        late.start()
        return x

    with started(tmp_path, "controller", "--bind", "127.0.0.1:0") as controller:
        address = re.search(r"at (\S+:\d+)", controller.stdout.readline())[1]
        with started(tmp_path, "worker", "--controller", address, "--threads", "1") as worker, br.connect(address) as cluster:
            eventually(lambda: cluster.status()["workers"])
            program(kernel, partitions=1).run()
            assert capsys.readouterr().out == "[w1, count] the kernel\n"
            doubled().run()
            time.sleep(1)
            worker.terminate()
            out = worker.communicate(timeout=PATIENCE_S)[0]
    assert "the process\n" in out and "a child\n" in out and "too late\n" in out
    assert "the kernel" not in out


class Noted:
    """Says when it is pickled."""

    def __reduce__(self):
        print("pickled", flush=True)
        return Noted, ()


def test_what_is_printed_between_kernels_is_not_taken_for_theirs(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def kernel(x):
        print("a kernel")
        return Noted()

    with started(tmp_path, "cluster", "--workers", "2", "--threads", "1", "--bind", "127.0.0.1:0") as cluster:
        address = re.search(r"at (\S+:\d+);", cluster.stdout.readline())[1]
        with br.connect(address):
            p = br.Program("noted")
            p.keep(p.reduce(lambda left, right: right, p.map(kernel, p.dataset("x", value=0, partitions=2))))
            p.run()
        cluster.terminate()
        elsewhere = cluster.communicate(timeout=PATIENCE_S)[1]
    assert sorted(capsys.readouterr().out.splitlines()) == ["[w1, kernel] a kernel", "[w2, kernel] a kernel"]
    assert "pickled\n" in elsewhere


def test_lines_find_their_way_past_streams_that_cannot_show_them(monkeypatch):
    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", ascii_only)
    monkeypatch.setattr(sys, "stderr", None)
    _prints.show([(True, "to nobody"), (False, "ü"), (True, "to nobody"), (False, "more")])
    assert ascii_only.buffer.getvalue() == b"\\xfc\nmore\n"
    ascii_only.close()
    _prints.show([(False, "to nobody")])


def test_a_terminal_shows_lines_and_how_far_the_run_is(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    progress = _progress.Progress("work")
    progress.show(1, 2, 3.0)
    progress.give_way()
    _prints.show([(True, "[w1, count] a line")])
    progress.show(2, 2, 4.0)
    shown = re.sub(r"work .*?\x1b", "BAR\x1b", terminal.getvalue())
    assert shown == "\rBAR\x1b[K\r\x1b[K[w1, count] a line\n\rBAR\x1b[K"


def test_in_one_process_kernels_print_as_ever(capsys):
    program(lambda x: print("as it is")).run(threads=2)
    assert capsys.readouterr().out == "as it is\n" * 4
