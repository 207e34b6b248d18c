#!/usr/bin/env python3
"""
`brambling sort` on one machine beside a bare program in C and the ideal of the disk's speeds in the
same minutes.

    sort_alone.py SIZE [--memory 4GB] [--rounds 7] [--threads 2] [--dir DIR] [--command BRAMBLING]

In each round, with cold caches: what the disk reads and writes (of our probe and fio the higher),
ours, and bench/peers/sort_bare.c with the same budget, the two in turns first. Every output is on
the disk at the end of its time. The ideal is that of the paper's Table 3 for one node: input read,
output written, and twice as much where the budget is less than the input. Without --memory the
budget is twice the input.

Ours is the time of the command without what `brambling sort --help` takes, measured right before
it: starting Python is not sorting. `with_start_s` is the whole, and `told_s` what the command says
of itself.

The last line is JSON: `over_ideal` and `over_c`, ours divided by the ideal and by C's time, round
by round; `best`, the lesser of their medians divided by 1.3 and 1.1. `failed` is what was not as it
should be: an output that is out of order, has another checksum than the input or other bytes than
C's, more memory than the budget and a tenth, a file left behind. The exit code is 1 if there is
any.
"""

import argparse
import json
import math
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from on_files import (
    RECORD_BYTES,
    budget,
    common_options,
    compiled,
    disk_speeds,
    files_in,
    forget,
    must,
    need,
    run,
    said_size,
    scratch,
    seconds_to_start,
    size,
    spread,
)  # noqa: E402

OVER_IDEAL, OVER_C = 1.3, 1.1
BUDGET_EXCEEDED = 1.1
# A budget that leaves room for what does not grow with the input.
LEAST_BUDGET = 512 << 20


def ideal_s(count, speeds, is_external):
    """Table 3 for one node: nothing goes over a network."""
    return (1 + is_external) * count * (1 / speeds["read"] + 1 / speeds["write"])


class Sorts:
    """The two programs, and the folder in which they sort."""

    def __init__(self, asked, folder):
        self.asked, self.folder = asked, folder
        self.input, self.tmp, self.outputs = folder / "in", folder / "tmp", folder / "out"
        self.bytes = asked.bytes // RECORD_BYTES * RECORD_BYTES
        self.memory = asked.memory or said_size(max(2 * self.bytes, LEAST_BUDGET))
        self.is_external = budget(self.memory) < self.bytes
        self.failed = []
        for made in (self.tmp, self.outputs):
            made.mkdir()
        self.bare = compiled("sort_bare", folder)
        must([asked.command, "sort", "--generate", self.bytes // RECORD_BYTES, self.input])
        self.checked = self.check(self.input)

    def check(self, path):
        """What `--check` says; the input is out of order, and has a checksum all the same."""
        return run([self.asked.command, "sort", "--check", path, "--json"])

    def hold(self, holds, what):
        if not holds:
            self.failed.append(what)
            print(f"FAILED: {what}", flush=True)

    def ours(self):
        out = self.outputs / "ours"
        forget()
        start_s = seconds_to_start(self.asked.command, "sort")
        ran = must(
            [
                self.asked.command,
                "sort",
                self.input,
                out,
                "--threads",
                self.asked.threads,
                "--memory",
                self.memory,
                "--tmp",
                self.tmp,
                "--json",
            ]
        )
        peak = max(ran.peak_rss_bytes, ran.told["peak_rss_bytes"])
        self.hold(
            peak <= BUDGET_EXCEEDED * budget(self.memory),
            f"{peak / 2**20:.0f} MiB resident of a budget of {self.memory}",
        )
        self.hold(files_in(self.tmp) == set(), f"left in the temporary folder: {files_in(self.tmp)}")
        self.hold(files_in(self.outputs) <= {"ours", "bare"}, f"left beside the output: {files_in(self.outputs)}")
        return ran, ran.seconds - start_s, peak

    def c(self):
        forget()
        return must(
            [self.bare, self.input, self.outputs / "bare", budget(self.memory), self.tmp, self.asked.threads]
        ).seconds

    def compare(self, is_first):
        """The output is in order, and has the input's records; once, byte by byte, it is C's too."""
        checked = self.check(self.outputs / "ours")
        self.hold(checked.code == 0, f"--check of the output ended with {checked.code}: {checked.error.strip()}")
        for key in ("records", "checksum"):
            self.hold(checked.told[key] == self.checked.told[key], f"{key} of the output is not the input's")
        if is_first:
            self.hold(
                run(["cmp", self.outputs / "ours", self.outputs / "bare"]).code == 0,
                "the output is not C's, byte by byte",
            )

    def round(self, at):
        speeds = disk_speeds(self.asked.command, self.folder)
        if at % 2:
            c_s = self.c()
            ran, ours_s, peak = self.ours()
        else:
            ran, ours_s, peak = self.ours()
            c_s = self.c()
        self.compare(at == 0)
        for out in self.outputs.iterdir():
            out.unlink()
        found = {
            "ours_s": ours_s,
            "with_start_s": ran.seconds,
            "told_s": ran.told["seconds"],
            "c_s": c_s,
            "ideal_s": ideal_s(self.bytes, speeds, self.is_external),
        }
        print(f"round {at + 1}: " + ", ".join(f"{name} {seconds:.3f}" for name, seconds in found.items()), flush=True)
        return {
            **found,
            "read_bytes_per_s": speeds["read"],
            "write_bytes_per_s": speeds["write"],
            "peak_rss_bytes": peak,
            "told": ran.told,
        }


def figures(rounds, sorts):
    over = {
        name: spread([it["ours_s"] / it[other] for it in rounds])
        for name, other in (("over_ideal", "ideal_s"), ("over_c", "c_s"))
    }
    names = (
        "ours_s",
        "with_start_s",
        "told_s",
        "c_s",
        "ideal_s",
        "read_bytes_per_s",
        "write_bytes_per_s",
        "peak_rss_bytes",
    )
    return {
        "best": min(over["over_ideal"]["median"] / OVER_IDEAL, over["over_c"]["median"] / OVER_C),
        **over,
        **{name: spread([it[name] for it in rounds]) for name in names},
        "c_over_ideal": statistics.median(it["c_s"] / it["ideal_s"] for it in rounds),
        "bytes": sorts.bytes,
        "memory": sorts.memory,
        "is_external": sorts.is_external,
        "rounds": len(rounds),
        "stages": rounds[-1]["told"].get("stages"),
        "bound_by": rounds[-1]["told"].get("bound_by"),
        "failed": sorts.failed,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bytes", type=size, metavar="SIZE", help="of the input, such as 1GB")
    parser.add_argument("--memory", help="the budget, such as 4GB")
    parser.add_argument("--threads", type=int, default=2)
    common_options(parser)
    asked = parser.parse_args()
    need("fio", "cc", "cmp", asked.command)
    with scratch(asked.dir, "sort-alone") as folder:
        sorts = Sorts(asked, Path(folder))
        found = figures([sorts.round(at) for at in range(asked.rounds)], sorts)
    assert math.isfinite(found["best"])
    print(json.dumps(found))
    sys.exit(bool(found["failed"]))


if __name__ == "__main__":
    main()
