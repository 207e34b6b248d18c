"""What the command does with the jobs of a cluster, as users call it: submit, jobs, logs, cancel, top."""

import concurrent.futures
import contextlib
import json
import os
import pty
import re
import select
import signal
import stat
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import pytest
from processes import PATIENCE_S, eventually, is_alive, running

import brambling as br

COMMAND = [sys.executable, "-m", "brambling"]

QUICK = """
import brambling as br
p = br.Program("quick")
x = p.dataset("x", value=21, partitions=4)
p.update(x, lambda x: 2 * x)
print("begins")
print(p.run()[x])
"""

# Runs until it is cancelled.
LONG = """
import time
import brambling as br
p = br.Program("long")
x = p.dataset("x", value=0, partitions=4)
def wait(x):
    time.sleep(0.005)
    return x + 1
with p.loop(10_000_000):
    p.update(x, wait)
print("begins")
try:
    p.run()
finally:
    print("ends")
"""


def brambling(*arguments, **variables):
    return subprocess.run(
        [*COMMAND, *arguments], env={**os.environ, **variables}, text=True, capture_output=True, timeout=PATIENCE_S)


def said(*arguments, **variables):
    """What a command says that goes well."""
    done = brambling(*arguments, **variables)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def complaint(*arguments, code=1, **variables):
    done = brambling(*arguments, **variables)
    assert (done.returncode, done.stdout) == (code, ""), done
    return done.stderr


def script(folder, text, name="train.py"):
    path = folder / name
    path.write_text(text)
    return str(path)


def job(address, name):
    (found,) = (it for it in json.loads(said("jobs", "--json", "--controller", address)) if it["id"] == name)
    return found


def submitted(address, path, *arguments, options=(), **variables):
    text = said("submit", "--controller", address, *options, path, *arguments, **variables)
    assert re.fullmatch(r"j\d+\n", text), text
    return text.strip()


def runs(address, name):
    found = job(address, name)
    return found["state"] == "running" and found["position"] > 0


def is_over(address, name):
    return job(address, name)["state"] in ("succeeded", "failed")


def logs_folder():
    return Path(os.environ["XDG_STATE_HOME"], "brambling/logs")


@contextlib.contextmanager
def long_job(address, folder):
    """A job that runs, for as long as it is needed."""
    name = submitted(address, script(folder, LONG))
    pid = job(address, name)["client"]["pid"]
    try:
        eventually(lambda: runs(address, name))
        yield name
    finally:
        brambling("cancel", name, "--controller", address)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_script_that_is_submitted_has_a_job_a_log_and_no_terminal(shared, tmp_path):
    name = submitted(shared, script(tmp_path, QUICK + "import sys; print(sys.argv[1:])"), "--rows", "5", "--help")
    at = ("--controller", shared)
    assert said("logs", name, "--follow", *at) == "begins\n[42, 42, 42, 42]\n['--rows', '5', '--help']\n"
    assert said("logs", name, *at).startswith("begins\n")
    found = job(shared, name)
    assert set(found) == {
        "id", "name", "state", "generation", "position", "failure", "waits", "cut", "last_snapshot_age_s",
        "tasks_total", "workers", "client"}
    assert (found["name"], found["state"], found["failure"]) == ("quick", "succeeded", None)
    assert found["position"] <= found["tasks_total"] == 4
    assert found["workers"] == ["w1", "w2"]
    table = said("jobs", *at).splitlines()
    assert re.match(r"JOB +STATE +NAME +GENERATION +TASKS +WORKERS +WHOSE", table[0])
    (line,) = (line for line in table if line.startswith(f"{name} "))
    assert re.search(r"succeeded +quick +0 +4 +2 ", line), line


def test_a_script_of_several_jobs_has_one_log(shared, tmp_path):
    name = submitted(shared, script(tmp_path, QUICK + "print(p.run()[x])"))
    whole = "begins\n[42, 42, 42, 42]\n[42, 42, 42, 42]\n"
    assert said("logs", name, "--follow", "--controller", shared) == whole
    log = job(shared, name)["client"]["log"]
    both = [it["id"] for it in json.loads(said("jobs", "--json", "--controller", shared)) if it["client"]["log"] == log]
    assert len(both) == 2 and both[0] == name
    assert said("logs", both[1], "--controller", shared) == whole


def test_a_log_is_followed_until_its_script_ends(shared, tmp_path):
    # What is written late is seen, however long there was nothing to read; and unbuffered.
    go = tmp_path / "go"
    text = QUICK + f"""
import os, time
deadline = time.monotonic() + {PATIENCE_S}
while not os.path.exists({str(go)!r}) and time.monotonic() < deadline:
    time.sleep(0.01)
print("ends" if os.path.exists({str(go)!r}) else "nobody came")
"""
    name = submitted(shared, script(tmp_path, text), PYTHONUNBUFFERED="")
    arguments = [*COMMAND, "logs", name, "--follow", "--controller", shared]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "begins\n"
        assert process.stdout.readline() == "[42, 42, 42, 42]\n"
        # Twice as long as it takes to look again.
        time.sleep(0.2)
        go.touch()
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, "ends\n")


def test_a_job_is_cancelled_by_its_name_and_its_client_is_told_by_whom(shared, tmp_path):
    with long_job(shared, tmp_path) as name:
        # At once, and not when the script ends.
        eventually(lambda: said("logs", name, "--controller", shared) == "begins\n")
        assert said("cancel", name, "--controller", shared, USER="bob") == f"job {name} is over\n"
        followed = said("logs", name, "--follow", "--controller", shared)
        pattern = rf"begins\nends\n.*ClusterError: job {name} was cancelled by bob on \S+ \(process \d+\)\n"
        assert re.fullmatch(pattern, followed, re.DOTALL), followed
        found = job(shared, name)
        assert found["state"] == "failed" and "cancelled by bob" in found["failure"]
        text = complaint("cancel", name, "--controller", shared)
        assert f"job {name} is over already: job {name} was cancelled by bob" in text
    # And the cluster is there for others.
    assert br.connect(shared).close() is None
    name = submitted(shared, script(tmp_path, QUICK))
    eventually(lambda: is_over(shared, name))
    text = complaint("cancel", name, "--controller", shared)
    assert f"job {name} is over already: it has succeeded" in text


def test_who_cancels_waits_for_the_end_no_longer_than_they_want(shared, tmp_path):
    with long_job(shared, tmp_path) as name:
        text = complaint("cancel", name, "--patience", "0", "--controller", shared)
        assert f"job {name} is not over after 0 s" in text and "brambling jobs" in text
        # It was told to end all the same.
        eventually(lambda: is_over(shared, name))


def test_a_job_that_waits_is_cancelled_before_it_begins(shared, tmp_path):
    arguments = ("cluster", "--workers", "1", "--threads", "1", "--bind", "127.0.0.1:0", "--jobs-at-once", "1")
    state = Path(os.environ["XDG_STATE_HOME"])
    with running(state, *arguments) as (_, address), long_job(address, tmp_path) as first:
        second = submitted(address, script(tmp_path, QUICK, "waits.py"))
        assert job(address, second)["state"] == "queued"
        said("cancel", second, "--controller", address)
        assert f"job {second} was cancelled" in said("logs", second, "--follow", "--controller", address)
        assert runs(address, first)


def test_jobs_run_side_by_side_and_one_that_ends_leaves_the_others(shared, tmp_path):
    with long_job(shared, tmp_path) as first:
        # What is shorter does not wait for it, however heavy that is.
        name = submitted(shared, script(tmp_path, QUICK, "quick.py"), options=("--weight", "3"))
        assert said("logs", name, "--follow", "--controller", shared) == "begins\n[42, 42, 42, 42]\n"
        failing = script(tmp_path, QUICK.replace("2 * x", "x / 0"), "fails.py")
        name = submitted(shared, failing, options=("--weight", "1000"))
        assert "ZeroDivisionError" in said("logs", name, "--follow", "--controller", shared)
        assert job(shared, name)["state"] == "failed"
        before = job(shared, first)["position"]
        eventually(lambda: job(shared, first)["position"] > before)
        assert runs(shared, first)
    text = complaint("submit", "--weight", "0", "--controller", shared, script(tmp_path, QUICK), code=2)
    assert "--weight" in text and "1..=1000" in text


def test_threads_of_a_process_run_programs_at_once():
    # The long one ends when the other has run: one after another they would wait for ever.
    has_run = threading.Event()

    def long():
        p = br.Program("long")
        goes_on = p.dataset("goes_on", value=True)
        deadline = time.monotonic() + PATIENCE_S
        with p.loop(while_=lambda it: it, on=goes_on):
            p.update(goes_on, lambda goes_on: not has_run.is_set() and time.monotonic() < deadline)
        p.run(weight=2)
        return has_run.is_set()

    with concurrent.futures.ThreadPoolExecutor() as threads:
        waiting = threads.submit(long)
        p = br.Program("quick")
        x = p.dataset("x", value=21, partitions=4)
        p.update(x, lambda x: 2 * x)
        assert p.run()[x] == [42] * 4
        has_run.set()
        assert waiting.result(timeout=PATIENCE_S)
    with pytest.raises(br.SettingsError, match="1 to 1000"):
        p.run(weight=0)


def test_what_cannot_be_done_is_told_with_its_reason(shared, tmp_path):
    at = ("--controller", shared)
    for command in ("cancel", "logs"):
        assert "there is no job j99999; `brambling jobs` lists" in complaint(command, "j99999", *at)
        assert "such as j1" in complaint(command, "train.py", *at, code=2)
    path = script(tmp_path, QUICK)
    nowhere = {"BRAMBLING_TOKEN": "ab" * 32}
    for arguments in (("submit", path), ("jobs",), ("cancel", "j1"), ("logs", "j1"), ("top",)):
        command, *rest = arguments
        text = complaint(command, "--controller", "127.0.0.1:1", *rest, **nowhere)
        assert "no controller at 127.0.0.1:1" in text, text
        text = complaint(command, "--controller", shared, *rest, **nowhere)
        assert "another token" in text, text
        text = complaint(command, *rest, XDG_STATE_HOME=str(tmp_path))
        assert "no cluster of this account" in text, text
    text = complaint("submit", *at, "word_cont", code=2)
    assert "did you mean: brambling submit word_count" in text
    assert "FILE.py" in complaint("submit", *at, code=2)


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("import sys; print('no rows'); sys.exit(3)", 3, "no rows"),
        ("1 / 0", 1, "ZeroDivisionError"),
        ("print('nothing to do')", 1, "ended without a job"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 1, "signal: 9"),
    ],
)
def test_a_script_that_ends_before_it_has_a_job_is_told_with_what_it_said(shared, tmp_path, text, code, says):
    found = complaint("submit", "--controller", shared, script(tmp_path, text), code=code)
    assert says in found and "train.py has ended" in found, found
    path = Path(re.search(r" in (/\S+\.log)\n", found)[1])
    assert path.read_text() in found


def test_a_script_that_is_interrupted_before_it_has_a_job_ends(shared, tmp_path):
    note = tmp_path / "pid"
    text = f"import os, pathlib, time; pathlib.Path({str(note)!r}).write_text(str(os.getpid())); time.sleep(1000)"
    arguments = [*COMMAND, "submit", "--controller", shared, script(tmp_path, text)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        eventually(lambda: note.exists() and note.read_text())
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (130, "")
    eventually(lambda: not is_alive(int(note.read_text())))


class Terminal:
    """A terminal in which a command runs as its session's leader."""

    def __init__(self, *arguments):
        pid, self.master = pty.fork()
        if pid == 0:
            os.execv(sys.executable, [*COMMAND, *arguments])
        self.pid, self.seen = pid, b""

    def read_until(self, what):
        deadline = time.monotonic() + PATIENCE_S
        while what not in self.seen:
            assert time.monotonic() < deadline, self.seen
            if select.select([self.master], [], [], 0.1)[0]:
                self.seen += os.read(self.master, 1 << 16)

    def has_ended(self):
        """Its exit code, when nothing more comes from it."""
        with contextlib.suppress(OSError):
            while select.select([self.master], [], [], PATIENCE_S)[0]:
                self.seen += os.read(self.master, 1 << 16)
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


def test_a_script_outlives_the_terminal_that_submitted_it(shared, tmp_path):
    terminal = Terminal("submit", "--controller", shared, script(tmp_path, LONG))
    terminal.read_until(b"\n")
    name = terminal.seen.decode().strip()
    pid = job(shared, name)["client"]["pid"]
    # As closing its window does: the session's processes are sent SIGHUP.
    os.close(terminal.master)
    os.waitpid(terminal.pid, 0)
    eventually(lambda: runs(shared, name))
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    session, terminal_number = int(fields[3]), int(fields[4])
    assert (session, terminal_number) == (pid, 0)
    said("cancel", name, "--controller", shared)
    eventually(lambda: not is_alive(pid))


def test_logs_are_read_by_nobody_else(shared, tmp_path):
    name = submitted(shared, script(tmp_path, QUICK))
    log = logs_folder() / job(shared, name)["client"]["log"]
    assert (stat.S_IMODE(log.stat().st_mode), stat.S_IMODE(log.parent.stat().st_mode)) == (0o600, 0o700)


def test_logs_are_of_those_who_submitted(shared, tmp_path):
    folder = logs_folder()
    at = ("--controller", shared)

    def of(**variables):
        """The job of a script that runs in a terminal."""
        done = subprocess.run(
            [sys.executable, script(tmp_path, QUICK)], text=True, capture_output=True, timeout=PATIENCE_S,
            env={**os.environ, "BRAMBLING_CONTROLLER": shared, **variables})
        assert done.returncode == 0, done
        return json.loads(said("jobs", "--json", *at))[-1]["id"]

    name = of()
    text = complaint("logs", name, *at)
    assert f"job {name} has no log; it was not started by `brambling submit`" in text
    name = of(BRAMBLING_SUBMISSION="theirs-1.log", USER="bob")
    text = complaint("logs", name, *at)
    assert f"is not in {folder}: it was submitted by bob" in text, text
    # A name leads nowhere else.
    (tmp_path / "secret").write_text("secret")
    for outside in (os.path.relpath(tmp_path / "secret", folder), str(tmp_path / "secret"), ".."):
        assert "it was submitted by" in complaint("logs", of(BRAMBLING_SUBMISSION=outside), *at)


def test_scripts_run_where_the_environment_says(shared, tmp_path):
    text = """
import brambling as br
p = br.Program("where")
x = p.dataset("x", value=1, partitions=4)
p.update(x, lambda x: x + 1)
def workers():
    return p.run().tally["threads"]
print(workers())
with br.connect() as cluster:
    print(cluster.address, workers())
print(workers(), len(cluster_jobs()))
"""
    text = text.replace("len(cluster_jobs())", "len(br._cluster._open)")
    done = subprocess.run(
        [sys.executable, "-c", text], text=True, capture_output=True, timeout=PATIENCE_S,
        env={**os.environ, "BRAMBLING_CONTROLLER": shared, "BRAMBLING_THREADS": "1"})
    assert (done.returncode, done.stdout) == (0, f"2\n{shared} 2\n2 1\n"), done
    # Commands as well; what is given goes before.
    assert said("jobs", BRAMBLING_CONTROLLER=shared).startswith("JOB")
    text = complaint("jobs", BRAMBLING_CONTROLLER="127.0.0.1:1")
    assert "127.0.0.1:1" in text
    assert said("jobs", "--controller", shared, BRAMBLING_CONTROLLER="127.0.0.1:1").startswith("JOB")


def test_kernels_run_their_programs_where_they_are(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with running(tmp_path, "controller", "--bind", "127.0.0.1:0") as (_, address):
        # The worker finds its controller by the variable. In its kernels it would wait for itself.
        monkeypatch.setenv("BRAMBLING_CONTROLLER", address)
        with running(tmp_path, "worker", "--threads", "1"):
            p = br.Program("inner")
            x = p.dataset("x", value=None, partitions=2)
            p.update(x, lambda x: repr(br._cluster.current()))
            assert p.run()[x] == ["None", "None"]
            assert repr(br._cluster.current()) == f"<cluster at {address}>"
            br._cluster.current().close()


def test_a_cluster_without_jobs_says_how_to_have_some(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with running(tmp_path, "controller", "--bind", "127.0.0.1:0"):
        assert "brambling submit FILE.py" in said("jobs")
        assert said("jobs", "--json") == "[]\n"
        # Nobody could run it.
        text = complaint("submit", script(tmp_path, QUICK))
        assert "the cluster has no workers" in text and "train.py has ended before it had a job" in text


def test_top_shows_workers_and_jobs(shared, tmp_path):
    at = ("--controller", shared)
    with long_job(shared, tmp_path) as name:
        for once in ((), ("--once",)):
            text = said("top", *at, *once)
            assert re.match(rf"brambling at {shared}: 2 workers, 2 threads; 1 jobs running, 0 waiting\n", text)
            assert re.search(r"\nw1 .* 1 +2 .*[█░]{20} +\d+ %\n", text), text
            assert re.search(rf"\n{name} +running +long +0 +\d+", text), text
        for how in (b"q", b"\x03", signal.SIGTERM):
            terminal = Terminal("top", *at)
            before = termios.tcgetattr(terminal.master)
            # A figure of the second picture: tasks in a second.
            terminal.read_until(b"\x1b[?1049h")
            deadline = time.monotonic() + PATIENCE_S
            while not re.search(rf"{name} +running +long +\d+ +\d+/\d+ \(\d+ %\) +\d", terminal.seen.decode(errors="replace")):
                assert time.monotonic() < deadline, terminal.seen
                if select.select([terminal.master], [], [], 0.1)[0]:
                    terminal.seen += os.read(terminal.master, 1 << 16)
            assert termios.tcgetattr(terminal.master)[3] & termios.ICANON == 0
            if isinstance(how, bytes):
                os.write(terminal.master, how)
            else:
                os.kill(terminal.pid, how)
            terminal.read_until(b"\x1b[?1049l")
            eventually(lambda: termios.tcgetattr(terminal.master) == before)
            assert terminal.has_ended() == 0
            assert b"\x1b[?25h" in terminal.seen
            os.close(terminal.master)


def test_help_shows_no_command_that_is_not_for_users():
    text = said("--help")
    for word in ("submit", "jobs", "cancel", "logs", "top"):
        assert re.search(rf"\n  {word} +\w", text), text
    assert "run-detached" not in text
