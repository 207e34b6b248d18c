"""Where a cluster's token can be found, and where not; and what a controller that is gone leaves behind."""

import contextlib
import itertools
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import PATIENCE_S, address_of, command, environment, eventually, is_alive, running

import brambling as br

BRAMBLING = [sys.executable, "-m", "brambling"]
GIVEN = "5a" * 32


def clusters(state):
    return Path(state) / "brambling/clusters"


def token_of(state):
    file, = clusters(state).iterdir()
    return re.search(r'token = "([0-9a-f]{64})"', file.read_text())[1]


def seen(x):
    """All that a kernel, and a process that it starts, find in environments, arguments and open files around them."""
    import os
    import posix
    import subprocess
    import sys
    from pathlib import Path

    found = {"os.environ": repr(dict(os.environ)), "posix.environ": repr(posix.environ), "sys.argv": repr(sys.argv)}
    for pid in ("self", os.getppid()):
        for name in ("environ", "cmdline"):
            found[f"{pid} {name}"] = Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            file = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            found[f"file {descriptor}"] = os.pread(file, 1 << 20, 0).decode(errors="replace")
        except OSError:
            # Pipes and the like: what came through the one for input has been read.
            pass
        finally:
            os.close(file)
    looks = "env; tr '\\0' '\\n' < /proc/$$/environ; tr '\\0' '\\n' < /proc/$PPID/environ; tr '\\0' ' ' < /proc/$PPID/cmdline"
    found["child"] = subprocess.run(["sh", "-c", looks], capture_output=True, text=True, check=True).stdout
    return found


def assert_hidden(cluster, token):
    p = br.Program("seen")
    x = p.dataset("x", value=0, partitions=2 * len(cluster.status()["workers"]))
    found = p.map(seen, x)
    p.keep(found)
    kept = p.run()[found]
    assert len(kept) >= 2
    for place, text in itertools.chain.from_iterable(found.items() for found in kept):
        assert token not in text, place
        assert place != "child" or "PATH=" in text


@pytest.mark.parametrize("is_given", [False, True], ids=["made", "given"])
def test_kernels_on_workers_of_a_cluster_do_not_see_its_token(tmp_path, monkeypatch, is_given):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    given = {"BRAMBLING_TOKEN": GIVEN} if is_given else {}
    arguments = [*BRAMBLING, "cluster", "--workers", "2", "--threads", "1", "--bind", "127.0.0.1:0"]
    with subprocess.Popen(
        arguments, env={**environment(tmp_path), **given}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            with br.connect(address_of(process)) as cluster:
                token = token_of(tmp_path)
                assert (token == GIVEN) == is_given
                assert_hidden(cluster, token)
                for pid in (process.pid, *(worker["pid"] for worker in cluster.status()["workers"])):
                    for name in ("environ", "cmdline"):
                        assert token.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE_S)


def test_a_worker_that_was_given_the_token_by_a_variable_hides_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    elsewhere = tmp_path / "elsewhere"
    with running(tmp_path, "controller", "--bind", "127.0.0.1:0") as (_, address):
        token = token_of(tmp_path)
        variables = {**environment(elsewhere), "BRAMBLING_TOKEN": token}
        arguments = [*BRAMBLING, "worker", "--controller", address, "--threads", "1"]
        with subprocess.Popen(arguments, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
            try:
                address_of(worker)
                with br.connect(address) as cluster:
                    assert_hidden(cluster, token)
            finally:
                worker.send_signal(signal.SIGINT)
                worker.communicate(timeout=PATIENCE_S)


SCRIPT = """
import os
from pathlib import Path
import brambling as br

p = br.Program("quick")
x = p.dataset("x", value=21, partitions=2)
p.update(x, lambda x: 2 * x)
print(p.run()[x], dict(os.environ), Path("/proc/self/environ").read_bytes(), Path("/proc/self/cmdline").read_bytes())
"""


def test_a_script_that_is_submitted_with_a_file_has_the_file_and_not_the_token(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    arguments = ("cluster", "--workers", "1", "--threads", "1", "--bind", "127.0.0.1:0")
    with running(tmp_path, *arguments) as (_, address):
        token = token_of(tmp_path)
        (tmp_path / "train.py").write_text(SCRIPT)
        file, = clusters(tmp_path).iterdir()
        (tmp_path / "token.toml").write_bytes(file.read_bytes())
        # Another one, which is not meant.
        variables = {**environment(elsewhere), "BRAMBLING_TOKEN": "ab" * 32}
        submitted = subprocess.run(
            [*BRAMBLING, "submit", "--controller", address, "--token-file", "token.toml", "train.py"],
            cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert submitted.returncode == 0, submitted.stderr
        log, = (elsewhere / "brambling/logs").iterdir()
        eventually(lambda: log.read_text().endswith("\n"))
        assert log.read_text().startswith("[42, 42]"), log.read_text()
        assert token not in log.read_text()


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
@pytest.mark.parametrize("is_wide", [False, True], ids=["new", "wide"])
def test_nobody_else_reads_what_commands_leave(tmp_path, umask, is_wide):
    state = tmp_path / "of/this/account"
    folders = [state / "brambling", clusters(state), state / "brambling/logs"]
    if is_wide:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o777)
    with command(state, "controller", "--bind", "127.0.0.1:0", umask=umask) as process:
        address = address_of(process)
        script = tmp_path / "train.py"
        script.write_text("print('nothing to do')")
        submitted = subprocess.run(
            [*BRAMBLING, "submit", "--controller", address, str(script)], env=environment(state), umask=umask,
            capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert "ended without a job" in submitted.stderr
        for folder in folders:
            assert mode(folder) == 0o700, folder
            for path in folder.iterdir():
                assert mode(path) == (0o700 if path.is_dir() else 0o600), path
        assert len(list(clusters(state).iterdir())) == len(list(folders[2].iterdir())) == 1
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    assert list(clusters(state).iterdir()) == []


def told(state, *arguments):
    return subprocess.run(
        [*BRAMBLING, *arguments], env=environment(state), capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def killed(state):
    """A controller that could take nothing back; where it was."""
    with command(state, "controller", "--bind", "127.0.0.1:0") as process:
        address = address_of(process)
        process.kill()
        process.communicate(timeout=PATIENCE_S)
    assert any(address.replace(":", "_") in path.name for path in clusters(state).iterdir())
    return address


def test_a_controller_that_was_killed_misleads_nobody(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    gone = [killed(tmp_path), killed(tmp_path)]
    # Also while somebody else listens there.
    host, port = gone[0].split(":")
    with socket.create_server((host, int(port))), running(tmp_path, "controller", "--bind", "127.0.0.1:0") as (_, address):
        assert len(list(clusters(tmp_path).iterdir())) == 3
        assert told(tmp_path, "status").returncode == 0
        with br.connect() as cluster:
            assert cluster.address == address
        # Only what is still true is left.
        assert [path.name for path in clusters(tmp_path).iterdir()] == [address.replace(":", "_") + ".toml"]
        with running(tmp_path, "controller", "--bind", "127.0.0.1:0") as (_, other):
            killed(tmp_path)
            said = told(tmp_path, "status").stderr
            named = said.split("give the address of one of them: ")[1].strip().split(", ")
            assert sorted(named) == sorted([address, other]), said
    killed(tmp_path)
    said = told(tmp_path, "status")
    assert "no cluster of this account is known; start one with `brambling cluster`" in said.stderr, said


def test_a_controller_takes_the_place_of_one_that_was_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    address = killed(tmp_path)
    assert f"no controller at {address}" in told(tmp_path, "status", "--controller", address).stderr
    with running(tmp_path, "controller", "--bind", address) as (_, again):
        assert again == address
        assert told(tmp_path, "status").returncode == 0


def test_a_file_of_another_machine_is_believed_while_somebody_listens(tmp_path):
    folder = clusters(tmp_path)
    with running(tmp_path, "controller", "--bind", "127.0.0.1:0") as (_, address):
        file, = folder.iterdir()
        # As where folders are shared, and locks of other machines are not seen.
        text = re.sub(r'host = ".*"', 'host = "elsewhere.invalid"', file.read_text())
        copy = folder / "copy.toml"
        copy.write_text(text)
        file.unlink()
        assert told(tmp_path, "status").returncode == 0
        copy.write_text(text.replace(address, killed(tmp_path)))
        assert "no cluster of this account is known" in told(tmp_path, "status").stderr
        assert copy.exists()


@pytest.mark.parametrize(("bind", "with_tls", "warns"), [
    ("127.0.0.1:0", False, False), ("[::1]:0", False, False), ("0.0.0.0:0", False, True), ("0.0.0.0:0", True, False)])
def test_who_can_be_reached_without_tls_is_told_once(tmp_path, bind, with_tls, warns):
    if with_tls:
        assert told(tmp_path, "certs", "--dir", str(tmp_path / "certs")).returncode == 0
    if bind.startswith("["):
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError as error:
            pytest.skip(f"this machine has no ::1: {error}")
    tls = ["--tls", str(tmp_path / "certs")] if with_tls else []
    with command(tmp_path, "controller", "--bind", bind, *tls) as process:
        address_of(process)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert said.count("can read and change what is sent") == (1 if warns else 0), said
    assert not warns or "brambling certs" in said and "--tls" in said


def test_workers_of_a_cluster_that_is_killed_end(tmp_path, monkeypatch):
    """They have read the token from their standard input, and hear there that it is over."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    arguments = ("cluster", "--workers", "2", "--threads", "1", "--bind", "127.0.0.1:0")
    with command(tmp_path, *arguments) as process:
        with br.connect(address_of(process)) as cluster:
            pids = [worker["pid"] for worker in cluster.status()["workers"]]
            begun = time.monotonic()
            process.kill()
            for pid in pids:
                eventually(lambda pid=pid: not is_alive(pid))
            # Before they give the controller up.
            assert time.monotonic() - begun < 8
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=PATIENCE_S)


@pytest.mark.parametrize("line", ["", "\n", "abc\n", "ab" * 200])
def test_an_attached_worker_without_a_token_says_so(tmp_path, line):
    done = subprocess.run(
        [*BRAMBLING, "worker", "--attached", "--controller", "127.0.0.1:1"], input=line, env=environment(tmp_path),
        capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert "the token in standard input cannot be used: a token is 64 hexadecimal digits" in done.stderr, done.stderr


def test_the_token_is_not_hidden_from_whom_it_was_given(tmp_path, monkeypatch):
    """Clients connect again, and start processes that do."""
    with running(tmp_path, "controller", "--bind", "127.0.0.1:0") as (_, address):
        monkeypatch.setenv("BRAMBLING_TOKEN", token_of(tmp_path))
        for _ in range(2):
            br.connect(address).close()
        assert os.environ["BRAMBLING_TOKEN"] == token_of(tmp_path)
