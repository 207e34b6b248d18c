"""What `brambling probe` answers where it cannot measure, keep or be trusted: each time the thing, the cause and the way out."""

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
from processes import PATIENCE_S, Process

PROBE = [sys.executable, "-m", "brambling", "probe"]
MEASURE = "`brambling probe` measures this machine again, and replaces it\n"


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    """No test finds what another one, or whoever runs them, has kept."""
    for variable, name in (("XDG_CACHE_HOME", "cache"), ("XDG_STATE_HOME", "state")):
        monkeypatch.setenv(variable, str(tmp_path / name))
    for variable in ("BRAMBLING_TOKEN", "BRAMBLING_TOKEN_FILE"):
        monkeypatch.delenv(variable, raising=False)


def probe(*arguments, **how):
    return subprocess.run([*PROBE, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE_S, check=False, **how)


def refused(*arguments, **how):
    """What is said, once nothing was measured."""
    done = probe(*arguments, **how)
    assert (done.returncode, done.stdout) == (1, ""), done
    return done.stderr


def kept(tmp_path):
    return tmp_path / "cache" / "brambling" / "machine.json"


def measured(tmp_path):
    """A file of this machine, made by its shortest probe."""
    done = probe("--only", "flops")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"kept in {kept(tmp_path)}\n")
    return json.loads(kept(tmp_path).read_text(encoding="utf-8"))


# ---- directories


def test_a_directory_that_is_not_there(tmp_path):
    absent = tmp_path / "absent"
    assert refused("--dir", absent) == f"error: there is no directory {absent}; name one that exists with --dir\n"
    assert not kept(tmp_path).exists()


def test_the_last_directory_is_looked_at_before_the_first_is_measured(tmp_path):
    begin = time.monotonic()
    assert "there is no directory" in refused("--only", "disk", "--dir", tmp_path, "--dir", tmp_path / "absent")
    # A disk's probe takes longer than any interpreter takes to start.
    assert time.monotonic() - begin < 10


def test_a_file_in_place_of_a_directory(tmp_path):
    file = tmp_path / "file"
    file.write_text("text", encoding="utf-8")
    assert refused("--dir", file) == f"error: {file} is no directory; name a directory with --dir\n"


def mounted(tmp_path, options, *arguments, cache=None):
    """Runs the command with a filesystem in memory of its own at `small`; skips where none can be mounted."""
    small = tmp_path / "small"
    small.mkdir()
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("to mount a filesystem needs root and unshare")
    script = f'mount -t tmpfs -o {options} none "$0" || exit 77; exec "$@"'
    words = ["unshare", "--mount", "sh", "-c", script, str(small), *PROBE, *map(str, arguments)]
    environment = {**os.environ, **({"XDG_CACHE_HOME": str(cache)} if cache else {})}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if done.returncode in (1, 77) and ("unshare:" in done.stderr or "mount:" in done.stderr):
        pytest.skip(f"no filesystem can be mounted here: {done.stderr.strip()}")
    return done, small


def test_a_directory_on_a_full_disk(tmp_path):
    done, small = mounted(tmp_path, "size=8m", "--dir", tmp_path / "small")
    assert done.returncode == 1
    assert done.stderr == (
        f"error: the disk of {small} is full: 8 MB are free, and a probe needs 256 MB for a moment; "
        "make room, or name another directory with --dir\n")


def test_a_directory_that_may_only_be_read(tmp_path):
    done, small = mounted(tmp_path, "ro", "--dir", tmp_path / "small")
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {small} may not be written to (Read-only file system")
    assert done.stderr.endswith("and a probe writes files there; name another directory with --dir, or change its rights\n")


def test_a_directory_without_rights(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    words = PROBE
    if os.geteuid() == 0:
        # Root may do anything, until that is taken from it.
        words = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *PROBE]
        if not shutil.which("setpriv") or subprocess.run([*words[:3], "true"], capture_output=True, check=False).returncode:
            pytest.skip("root runs this, and setpriv cannot take its rights")
    done = subprocess.run([*words, "--dir", str(closed)], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {closed} may not be written to (Permission denied"), done.stderr


def test_a_directory_in_memory_is_told_apart(tmp_path):
    done, small = mounted(tmp_path, "size=600m", "--only", "disk", "--dir", tmp_path / "small")
    assert done.returncode == 0, done.stderr
    assert f"disk of {small} (it lies in memory: there is no disk)" in done.stdout


# ---- the file that keeps it


def test_nothing_was_measured_yet():
    assert refused("--show") == "not probed: `brambling probe` (2 min)\n"


@pytest.mark.parametrize("text", ["", "{", "null", '{"version": 1}', "\0" * 100])
def test_a_damaged_file(tmp_path, text):
    measured(tmp_path)
    kept(tmp_path).write_text(text, encoding="utf-8")
    answer = refused("--show")
    assert answer.startswith(f"error: the probe's file {kept(tmp_path)} is damaged: ")
    assert answer.endswith(MEASURE)


def test_a_damaged_file_is_replaced_aloud(tmp_path):
    measured(tmp_path)
    kept(tmp_path).write_text("{", encoding="utf-8")
    done = probe("--only", "flops")
    assert done.returncode == 0
    assert f"replaced: the probe's file {kept(tmp_path)} is damaged: " in done.stderr
    assert probe("--show").returncode == 0


def test_a_file_of_a_newer_version(tmp_path):
    found = measured(tmp_path)
    kept(tmp_path).write_text(json.dumps({**found, "version": 2, "flops": "otherwise"}), encoding="utf-8")
    assert refused("--show") == (
        f"error: the probe's file {kept(tmp_path)} is of version 2, and this brambling reads version 1: "
        f"a newer one has written it; use that, or {MEASURE}")


def test_a_file_of_another_machine(tmp_path):
    found = measured(tmp_path)
    kept(tmp_path).write_text(json.dumps({**found, "host": "elsewhere"}), encoding="utf-8")
    answer = refused("--show")
    assert answer.startswith(f"error: the probe's file {kept(tmp_path)} is of another machine: elsewhere with ")
    assert answer.endswith(MEASURE)


def test_the_doctor_tells_of_the_probe(tmp_path):
    def doctor(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "brambling", "doctor", *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False).stdout

    assert "not probed: `brambling probe` (2 min)" in doctor()
    found = measured(tmp_path)
    assert "measured 0 min ago; `brambling probe --show` prints it" in doctor()
    assert json.loads(doctor("--json"))["probed_at"] == found["measured_at"]
    kept(tmp_path).write_text("{", encoding="utf-8")
    assert "is damaged" in doctor()


def test_what_was_not_measured_now_is_kept(tmp_path):
    flops = measured(tmp_path)["flops"]
    assert probe("--only", "loopback").returncode == 0
    found = json.loads(probe("--show", "--json").stdout)
    assert found["flops"] == flops
    assert [it["flows"] for it in found["loopback"]["flows"]][0] == 1
    assert found["disks"] == []


def test_a_folder_that_cannot_keep_it_does_not_lose_the_figures(tmp_path, monkeypatch):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("text", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(in_the_way))
    done = probe("--only", "flops", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["flops"]
    assert f"{in_the_way}/brambling/machine.json" in done.stderr
    assert "name another" in done.stderr


def test_a_folder_that_may_only_be_read(tmp_path):
    done, small = mounted(tmp_path, "ro", "--only", "flops", cache=tmp_path / "small")
    assert done.returncode == 1
    assert "flops of f64" in done.stdout
    assert f"error: what was measured cannot be kept in {small}/brambling/machine.json: Read-only file system" in done.stderr


def test_no_folder_at_all(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    assert refused("--show") == (
        "error: there is no folder for the probe's file: neither XDG_CACHE_HOME nor HOME names one; set one of them\n")


# ---- interrupted


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_nothing_is_left_of_an_interrupted_probe(tmp_path, how, code):
    there = tmp_path / "there"
    there.mkdir()
    with Process([*PROBE, "--only", "disk", "--dir", str(there)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + PATIENCE_S
        # It is at work once it has a file there, without a name.
        while not any(str(there) in it for it in open_files(process.pid)):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(how)
        _, complaint = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code
    assert how == signal.SIGKILL or complaint == "interrupted: nothing was kept\n"
    assert list(there.iterdir()) == []
    assert not kept(tmp_path).exists()


def open_files(pid):
    """The names behind a process's descriptors."""
    names = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            names.append(os.readlink(f"/proc/{pid}/fd/{number}"))
    return names


# ---- hosts


@pytest.fixture
def token(tmp_path):
    file = tmp_path / "token"
    file.write_text(secrets.token_hex(32), encoding="utf-8")
    return file


class Listening:
    """A probe's listener on this machine."""

    def __init__(self, token):
        words = [*PROBE, "--listen", "127.0.0.1:0", "--token-file", str(token)]
        self.process = Process(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line.startswith("probe at "), self.process.stderr.read()
        self.at = line.split()[2].rstrip(";")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=PATIENCE_S)


def test_hosts_of_one_token_are_measured_and_kept(token):
    with Listening(token) as one, Listening(token) as other:
        done = probe("--hosts", f"{one.at},{other.at}", "--token-file", token, "--json")
    assert done.returncode == 0, done.stderr
    network = json.loads(done.stdout)["network"]
    assert network["hosts"] == [one.at, other.at]
    assert [(it["from"], it["to"]) for it in network["pairs"]] == [(0, 1), (1, 0)]
    assert json.loads(probe("--show", "--json").stdout)["network"] == network


def test_no_token():
    for arguments in (["--listen"], ["--hosts", "127.0.0.1:1,127.0.0.1:2"]):
        answer = refused(*arguments)
        assert answer.startswith("error: no token: a listener and whoever gives it orders know the same one; give a file with --token-file")


def test_another_token(tmp_path, token):
    other = tmp_path / "other"
    other.write_text(secrets.token_hex(32), encoding="utf-8")
    with Listening(token) as one, Listening(other) as two:
        answer = refused("--hosts", f"{one.at},{two.at}", "--token-file", token)
    assert answer.startswith(f"error: {two.at} does not take part: it has another token; ")


def test_a_token_that_is_none(tmp_path):
    file = tmp_path / "token"
    file.write_text("secret", encoding="utf-8")
    assert "a token is 64 hexadecimal digits" in refused("--listen", "--token-file", file)


def test_a_host_that_is_not_there(token):
    with socket.socket() as taken, Listening(token) as one:
        taken.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
        answer = refused("--hosts", f"{one.at},{nobody}", "--token-file", token)
    assert answer.startswith(f"error: nobody can be reached at {nobody}: Connection refused")
    assert f"start `brambling probe --listen {nobody}` there" in answer


def test_something_else_listens_there(token):
    with socket.create_server(("127.0.0.1", 0)) as other, Listening(token) as one:
        at = f"127.0.0.1:{other.getsockname()[1]}"
        words = [*PROBE, "--hosts", f"{one.at},{at}", "--token-file", str(token)]
        with Process(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            connection, _ = other.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b" " * 100)
                _, answer = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert answer.startswith(f"error: {at} does not take part: what is there does not speak as brambling does")


def test_a_listener_that_goes_away(token):
    with Listening(token) as one, Listening(token) as two:
        words = [*PROBE, "--hosts", f"{one.at},{two.at}", "--token-file", str(token)]
        with Process(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            time.sleep(2)
            two.process.kill()
            out, answer = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (1, "")
    assert two.at in answer
    gone = f"error: {two.at} is gone, or no probe listens there: "
    assert answer.startswith((gone, f"error: {one.at} cannot send to {two.at}: ")), answer


def test_hosts_that_are_no_two(token):
    with Listening(token) as one:
        assert "a network is between two hosts at least" in refused("--hosts", one.at, "--token-file", token)
        assert "is given twice; give each host once" in refused("--hosts", f"{one.at},{one.at}", "--token-file", token)
        assert "`nowhere` is no address" in refused("--hosts", f"{one.at},nowhere", "--token-file", token)


def test_an_address_that_cannot_be_listened_at(token):
    answer = refused("--listen", "nowhere", "--token-file", token)
    assert answer.startswith("error: `nowhere` is no address to listen at; give ADDR:PORT of this host")
    with Listening(token) as one:
        answer = refused("--listen", one.at, "--token-file", token)
    assert answer.startswith(f"error: cannot listen at {one.at}: Address already in use")


@pytest.mark.parametrize("arguments", [
    ["--only", "disks"], ["--show", "--only", "disk"], ["--listen", "--json"], ["--hosts", "a:1,b:1", "--dir", "."], ["--fast"],
])
def test_arguments_that_do_not_go_together(arguments):
    done = probe(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
