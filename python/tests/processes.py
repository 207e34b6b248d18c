"""The processes of clusters that tests start, and end."""

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import brambling as br

# Far longer than anything here takes.
PATIENCE_S = 120


def environment(state):
    """Where processes of a test find its clusters, and no others."""
    return {**os.environ, "XDG_STATE_HOME": str(state)}


class Process(subprocess.Popen):
    """A process that a failed test does not leave behind, and that none waits for without end."""

    def __exit__(self, kind, *error):
        if kind is not None:
            self.kill()
        try:
            self.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        finally:
            super().__exit__(kind, *error)


def command(state, *arguments, **how):
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
    return Process([sys.executable, "-m", "brambling", *arguments], env=environment(state), text=True, **how)


def address_of(process):
    """The address that a controller or a cluster prints first."""
    line = process.stdout.readline()
    found = re.search(r"at (\S+:\d+)", line)
    assert found, line + process.stderr.read()
    return found[1]


@contextlib.contextmanager
def running(state, *arguments):
    """A process of a cluster, and the address that it prints; ended as Ctrl-C does."""
    with command(state, *arguments) as process:
        try:
            yield process, address_of(process)
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE_S)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")


def eventually(holds):
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def stop(pid):
    """Stops a process, and waits until all of its threads have: one that the signal has not reached yet would answer."""
    os.kill(pid, signal.SIGSTOP)

    def has_stopped(task):
        return re.search(r"^State:\s+T", (task / "status").read_text(), re.MULTILINE)

    eventually(lambda: all(map(has_stopped, Path(f"/proc/{pid}/task").iterdir())))


def doubled():
    p = br.Program("doubled")
    x = p.dataset("x", value=21, partitions=4)
    p.update(x, lambda x: 2 * x)
    return p


def descriptors(pid):
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def resident_kb(pid):
    return int(re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1])


def ports_of(pid):
    """Where a process listens."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            inodes |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(descriptor)))
    lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return [int(field[1].split(":")[1], 16) for field in fields if field[3] == "0A" and field[9] in inodes]


def in_a_terminal(words, env):
    """Standard output of a command that ends well, and what the terminal got that is its standard error."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    line = [sys.executable, *map(str, words)]
    done = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=theirs, text=True, env=env)
    os.close(theirs)
    got = b""
    while True:
        try:
            more = os.read(ours, 4096)
        except OSError:  # The other end is closed.
            break
        if not more:
            break
        got += more
    os.close(ours)
    out, _ = done.communicate(timeout=PATIENCE_S)
    assert done.returncode == 0, got.decode()
    return out, got.decode()
