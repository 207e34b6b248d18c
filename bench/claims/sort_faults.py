#!/usr/bin/env python3
"""
Whether `brambling sort` meets faults as it should: a clear error, the input untouched, nothing
partial under the final name, no files left.

    sort_faults.py [--bytes 200MB] [--memory 128MB] [--kills 20] [--seed 1] [--dir DIR] [--command BRAMBLING]

A disk that fills under the output and under the runs (a small file system is mounted for it), a
file that ends within a record, inputs that cannot be read or are not there, output over input by
its name, a link and a second name, and `kill -9` at random moments of sorts in memory and with
runs, each over an older output. --memory has to be less than the input. Needs root. The last line
is JSON: `unmet` is how many things were not as they should be, `which` names them. What could not
be tried is unmet too.
"""

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from on_files import RECORD_BYTES, budget, common_options, files_in, must, need, run, said_size, scratch, size  # noqa: E402

OLD = b"what an earlier sort has made"
# Of the file system that fills; the input is larger.
SMALL_BYTES = 64 << 20
LEAST_BUDGET = 512 << 20


def digest(path):
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def has_unnamed(folder):
    """Whether files there can be without a name."""
    with contextlib.suppress(OSError):
        os.close(os.open(folder, os.O_TMPFILE | os.O_RDWR))
        return True
    return False


@contextlib.contextmanager
def mounted(folder, words, image=None):
    """A folder on a file system of its own, while it is used."""
    folder.mkdir()
    must([*words, folder])
    try:
        yield folder
    finally:
        must(["umount", folder])
        if image:
            image.unlink()


def small(folder, kind):
    """One that is full soon: in memory, or `ext4` in a file."""
    if kind == "tmpfs":
        return mounted(folder, ["mount", "-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "tmpfs"])
    image = folder.parent / f"{folder.name}.image"
    with image.open("wb") as file:
        file.truncate(SMALL_BYTES)
    must(["mkfs.ext4", "-q", image])
    return mounted(folder, ["mount", "-o", "loop", image], image)


def without_unnamed(folder):
    """One on which every file has a name: a folder as FUSE shows it."""
    shown = folder.parent / f"{folder.name}.shown"
    shown.mkdir()
    return mounted(folder, ["bindfs", shown])


class Faults:
    """What is tried, and what was not as it should be."""

    def __init__(self, asked, folder):
        self.asked, self.folder, self.unmet, self.tried = asked, folder, [], 0
        self.input, self.tmp, self.outputs = folder / "in", folder / "tmp", folder / "out"
        self.tmp.mkdir()
        self.outputs.mkdir()
        self.out = self.outputs / "sorted"
        must([asked.command, "sort", "--generate", asked.bytes // RECORD_BYTES, self.input])
        self.digest = digest(self.input)
        self.ample = said_size(max(4 * asked.bytes, LEAST_BUDGET))

    def hold(self, holds, case, what):
        self.tried += 1
        if not holds:
            self.unmet.append(f"{case}: {what}")
            print(f"UNMET: {self.unmet[-1]}", flush=True)

    def words(self, source, out, memory, tmp=None):
        return [self.asked.command, "sort", source, out, "--memory", memory, "--tmp", tmp or self.tmp]

    def refused(self, case, words, says, out=None, before=()):
        """A sort that has to end with an error that has some words in it, and to leave everything as it was."""
        out = out or self.out
        kept = OLD if out.exists() and not out.samefile(self.input) else None
        ran = run([*before, *words])
        print(f"{case}: {ran.code}, {ran.error.strip()[-400:]}", flush=True)
        self.hold(ran.code in (1, 2), case, f"it ended with {ran.code}")
        error = ran.error.lower().replace(",", "")
        missing = [it for it in says if it.lower() not in error]
        self.hold(not missing, case, f"the error does not say {missing}: {ran.error.strip()[-300:]!r}")
        self.hold(not any(it in ran.error for it in ("panicked", "Traceback")), case, "it shows its own insides")
        if kept is not None:
            self.hold(out.exists() and out.read_bytes() == kept, case, "an older output was touched")
        self.hold(digest(self.input) == self.digest, case, "the input was touched")
        self.hold(files_in(self.tmp) == set(), case, f"left in the temporary folder: {files_in(self.tmp)}")
        others = files_in(self.outputs) - {"sorted", "link", "name"}
        self.hold(not others, case, f"left beside the output: {others}")

    def full_disks(self, kind):
        with small(self.folder / f"small-{kind}", kind) as disk:
            there = files_in(disk)
            out = disk / "sorted"
            for older in (False, True):
                case = f"a full disk under {'an older' if older else 'the'} output, {kind}"
                if older:
                    out.write_bytes(OLD)
                self.refused(case, self.words(self.input, out, self.ample), [str(out), "space"], out)
                self.hold(
                    files_in(disk) - there == ({"sorted"} if older else set()),
                    case,
                    f"left there: {files_in(disk) - there}",
                )
            out.unlink()
            case = f"a full disk under the runs, {kind}"
            self.refused(case, self.words(self.input, self.out, self.asked.memory, disk), [str(disk), "space"])
            self.hold(not self.out.exists(), case, "there is an output")
            self.hold(files_in(disk) == there, case, f"left there: {files_in(disk) - there}")

    def inputs(self):
        broken = self.folder / "broken"
        with self.input.open("rb") as file:
            broken.write_bytes(file.read(1_000_037))
        self.refused("a truncated record file", self.words(broken, self.out, self.ample), [str(broken), "37", "100"])
        broken.chmod(0)
        # Root reads everything, unless it may not.
        bound = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
        self.refused(
            "an unreadable input",
            self.words(broken, self.out, self.ample),
            [str(broken), "permission denied"],
            before=bound,
        )
        broken.unlink()
        self.refused(
            "an input that is not there", self.words(broken, self.out, self.ample), [str(broken), "no such file"]
        )
        self.refused("a folder as input", self.words(self.tmp, self.out, self.ample), [str(self.tmp), "director"])
        self.hold(not self.out.exists(), "inputs that cannot be read", "there is an output")

    def same_file(self):
        """Only names differ; what a name stands for is the input."""
        link, name = self.outputs / "link", self.outputs / "name"
        link.symlink_to(self.input)
        name.hardlink_to(self.input)
        for case, out in (("output over input", self.input), ("by a link", link), ("by a second name", name)):
            self.refused(case, self.words(self.input, out, self.ample), [str(out), "input"], out)
            self.hold(out.samefile(self.input), case, "the name stands for something else now")
        link.unlink()
        name.unlink()

    def sorted_digest(self):
        must(self.words(self.input, self.out, self.ample))
        found = digest(self.out)
        self.hold(
            run([self.asked.command, "sort", "--check", self.out]).code == 0,
            "a sort without faults",
            "its output is not in order",
        )
        self.out.unlink()
        return found

    def kills(self, outputs, count, draw, whole):
        """`kill -9` at random moments of a sort; then one that nobody kills."""
        out, tmp = outputs / "sorted", outputs / "tmp"
        tmp.mkdir()
        case, there = f"kill -9, {outputs.name}", files_in(outputs)
        unnamed, took, late = has_unnamed(outputs), [], 0
        for at in range(count):
            words = list(map(str, self.words(self.input, out, (self.ample, self.asked.memory)[at % 2], tmp)))
            if at < 2:
                # How long it takes in this budget.
                ran = run(words)
                took.append(ran.seconds)
                self.hold(ran.code == 0, case, f"before any kill it ended with {ran.code}: {ran.error.strip()[-300:]}")
            out.write_bytes(OLD)
            with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                time.sleep(draw.uniform(0, took[at % 2]))
                process.kill()
            late += process.returncode == 0
            is_old = out.exists() and out.stat().st_size == len(OLD) and out.read_bytes() == OLD
            self.hold(
                is_old or (out.exists() and digest(out) == whole),
                case,
                "what is under the final name is neither the older output nor a whole one",
            )
            if unnamed:
                left = files_in(outputs) - there - {"sorted"}
                self.hold(not left, case, f"left at kill {at + 1}: {left}")
        ran = run(self.words(self.input, out, self.asked.memory, tmp))
        self.hold(
            ran.code == 0 and digest(out) == whole, case, f"the sort after it is not whole: {ran.error.strip()[-300:]}"
        )
        self.hold(
            files_in(outputs) == there | {"sorted"},
            case,
            f"left after the next start: {files_in(outputs) - there - {'sorted'}}",
        )
        self.hold(late < count // 2, case, f"{late} of {count} had ended before they were killed")
        self.hold(digest(self.input) == self.digest, case, "the input was touched")
        shutil.rmtree(tmp)
        out.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=size, default=size("200MB"), metavar="SIZE")
    parser.add_argument("--memory", default="128MB", help="the lesser budget")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    common_options(parser)
    asked = parser.parse_args()
    need(asked.command, "setpriv", "mount", "mkfs.ext4", "bindfs")
    if os.geteuid() != 0:
        sys.exit("sort_faults.py: small disks are mounted, which needs root; nothing was tried")
    if budget(asked.memory) >= asked.bytes or asked.bytes <= SMALL_BYTES:
        parser.error(f"--bytes has to exceed --memory and {SMALL_BYTES >> 20} MiB, which is what the full disk holds")
    draw = random.Random(asked.seed)
    with scratch(asked.dir, "sort-faults") as folder:
        faults = Faults(asked, Path(folder))
        faults.inputs()
        faults.same_file()
        whole = faults.sorted_digest()
        for kind in ("tmpfs", "ext4"):
            faults.full_disks(kind)
        disk = faults.folder / "unnamed files"
        disk.mkdir()
        if not has_unnamed(disk):
            sys.exit(f"{disk} has no files without a name; give another --dir")
        faults.kills(disk, asked.kills, draw, whole)
        with without_unnamed(faults.folder / "named files") as disk:
            assert not has_unnamed(disk)
            faults.kills(disk, max(asked.kills // 4, 4), draw, whole)
    print(json.dumps({"unmet": len(faults.unmet), "which": faults.unmet, "tried": faults.tried, "seed": asked.seed}))
    sys.exit(bool(faults.unmet))


if __name__ == "__main__":
    main()
