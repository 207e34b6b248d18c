"""
What the claims of jobs on files share: commands that are timed and whose memory is watched, caches
that are dropped, the disk's speeds.

Sizes of data are decimal, as in `brambling model`; budgets are binary, as in the settings.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from probe_beside import disks  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / "bench" / "peers"
RECORD_BYTES = 100
POWERS = {"": 0, "k": 1, "M": 2, "G": 3, "T": 4}
SAMPLED_EVERY_S = 0.01
# Far longer than any job here takes.
PATIENCE_S = 1800


def size(text, base=1000):
    """Bytes of `1GB` and the like."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kMGT]?)B?", text)
    if not found:
        raise SystemExit(f"{text!r} is no size such as 1GB or 200MB")
    return round(float(found[1]) * base ** POWERS[found[2]])


def budget(text):
    """Bytes of a budget, as settings count them."""
    return size(text, 1024)


def said_size(count):
    """A budget of at least so many bytes, as settings take it."""
    return f"{-(-count // (1 << 20))}MB"


@dataclass
class Ran:
    """What became of a command."""

    code: int
    seconds: float
    peak_rss_bytes: int
    out: str
    error: str

    @property
    def told(self):
        """The JSON in its last line."""
        try:
            return json.loads(self.out.splitlines()[-1])
        except (IndexError, ValueError) as error:
            raise SystemExit(
                f"the last line of its output is no JSON: {self.out[-200:]!r}; it said {self.error[-400:]!r}"
            ) from error


class Memory:
    """The most resident memory that a process had, as the system counts it, seen again and again while it lives."""

    def __init__(self, pid):
        self.status, self.peak_bytes, self.ends = Path(f"/proc/{pid}/status"), 0, threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()

    def watch(self):
        while not self.ends.wait(SAMPLED_EVERY_S):
            try:
                found = re.search(r"VmHWM:\s+(\d+) kB", self.status.read_text())
            except (FileNotFoundError, ProcessLookupError):
                return
            if found:
                self.peak_bytes = max(self.peak_bytes, int(found[1]) * 1024)

    def stop(self):
        self.ends.set()
        self.thread.join()
        return self.peak_bytes


def run(words, **how):
    """Runs a command to its end, which may be a failure."""
    words = [str(word) for word in words]
    begun = time.perf_counter()
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", **how
    ) as process:
        memory = Memory(process.pid)
        try:
            out, error = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise SystemExit(f"{' '.join(words)} has not ended after {PATIENCE_S} s") from None
        finally:
            peak = memory.stop()
    return Ran(process.returncode, time.perf_counter() - begun, peak, out, error)


def must(words, **how):
    """Runs a command that has to succeed."""
    ran = run(words, **how)
    if ran.code != 0:
        raise SystemExit(f"{' '.join(map(str, words))} ended with {ran.code}: {ran.error.strip() or ran.out.strip()}")
    return ran


def forget():
    """Everything written reaches the disk, and nothing read stays in memory."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except PermissionError:
        raise SystemExit("a cold cache needs root, for /proc/sys/vm/drop_caches; nothing was measured") from None


def seconds_to_start(command, part):
    """What a command of ours takes to say what it can do. It was started once before, so that nothing of it is read from the disk."""
    must([command, part, "--help"])
    return must([command, part, "--help"]).seconds


def compiled(name, folder):
    """A bare program of bench/peers, by this machine's compiler."""
    program = Path(folder) / name
    must(["cc", "-O3", "-march=native", "-pthread", "-o", program, PEERS / f"{name}.c"])
    return program


def disk_speeds(command, directory):
    """Bytes a second that the disk of a directory reads and writes now: of our probe's and fio's figures the higher one."""
    with tempfile.TemporaryDirectory() as cache:
        found = disks(command, cache, str(directory), samples=1)
    return {name.removeprefix("disk_"): max(ours["median"], theirs) for name, (ours, theirs) in found.items()}


@contextlib.contextmanager
def cluster(command, state, workers, **settings):
    """The address of a cluster on this machine whose workers have one thread each, and settings of their own."""
    words = [command, "cluster", "--workers", str(workers), "--threads", "1", "--bind", "127.0.0.1:0"]
    environment = {**os.environ, **settings, "XDG_STATE_HOME": str(state)}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            found = re.search(r"at (\S+:\d+)", line)
            if not found:
                process.kill()
                raise SystemExit(f"no cluster of {workers} workers: {line}{process.stderr.read()}")
            yield found[1]
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE_S)


def parts_in(folder):
    """What a sort on a cluster has made, in its order."""
    return sorted(Path(folder).glob("part-*"))


def need(*programs):
    """Ends the script where a program is missing, before anything is made."""
    missing = [it for it in programs if not shutil.which(it)]
    if missing:
        print(f"{Path(sys.argv[0]).name}: not found here: {', '.join(missing)}; nothing was measured", file=sys.stderr)
        sys.exit(2)


def spread(samples):
    return {"median": statistics.median(samples), "min": min(samples), "max": max(samples)}


def files_in(folder):
    """Names of all files and folders below it."""
    return {str(path.relative_to(folder)) for path in Path(folder).rglob("*")}


def common_options(parser):
    """What all of these scripts take."""
    parser.add_argument(
        "--command", default=str(ROOT / ".venv" / "bin" / "brambling"), help="the command that is measured"
    )
    parser.add_argument("--dir", default=str(ROOT / "build" / "claims"), help="on the disk that is measured")
    parser.add_argument("--rounds", type=int, default=7)


def scratch(directory, name):
    """A folder of its own on the disk that is measured, which is gone at the end."""
    Path(directory).mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix=f"{name}-", dir=directory)
