#!/usr/bin/env python3
"""
`brambling grep` for a rare word in a large text: cold beside the disk's speed and a bare program in
C, warm beside ripgrep and GNU grep.

    grep_rare.py [--bytes 4GB] [--rounds 7] [--threads 2] [--dir DIR] [--command BRAMBLING]

In each round: what the disk reads (of our probe and fio the higher), then ours and
bench/peers/grep_bare.c with cold caches, then ours, ripgrep and GNU grep with the text in memory,
in another order each time. All print to a pipe, and all have to print the same. Ours is the time of
the command without what `brambling grep --help` takes, measured right before it: starting Python is
not searching. The figures with it are told too.

The last line is JSON: `cold_over_ideal` and `warm_over_ripgrep` are medians of the rounds' ratios.
`failed` is what did not print the same; the exit code is 1 if there is any.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).resolve().parents[1])]
from on_files import common_options, compiled, disk_speeds, forget, must, need, scratch, seconds_to_start, size, spread  # noqa: E402
from peers.files import RARE, words  # noqa: E402

# A larger text repeats one of this size.
REPEATED = 500_000_000
PLAIN = {**os.environ, "LC_ALL": "C"}


def made(folder, count):
    """The text: words whose frequency is that of a language, and some lines with the rare one."""
    words(folder, min(count, REPEATED))
    piece, text = folder / "words", folder / "text"
    with text.open("wb") as file:
        while file.tell() < count:
            with piece.open("rb") as once:
                shutil.copyfileobj(once, file, 1 << 24)
    piece.unlink()
    return text


class Searches:
    """The programs, and what they have to print."""

    def __init__(self, asked, folder):
        self.asked, self.failed = asked, []
        self.text = made(folder, asked.bytes)
        self.bare = compiled("grep_bare", folder)
        self.expected = must(["grep", "-F", RARE, self.text], env=PLAIN).out
        assert self.expected.count("\n") >= 1

    def seconds(self, name, words):
        ran = must(words, env=PLAIN)
        if ran.out != self.expected:
            self.failed.append(f"{name} does not print what GNU grep prints")
        return ran.seconds

    def ours(self, name):
        start_s = seconds_to_start(self.asked.command, "grep")
        with_start_s = self.seconds(
            name, [self.asked.command, "grep", RARE, self.text, "--threads", self.asked.threads]
        )
        return {f"{name}_s": with_start_s - start_s, f"{name}_with_start_s": with_start_s}

    def cold(self):
        forget()
        found = self.ours("cold")
        forget()
        return {**found, "cold_c_s": self.seconds("C", [self.bare, RARE, self.text])}

    def warm(self, at):
        turns = [
            lambda: self.ours("warm"),
            lambda: {"ripgrep_s": self.seconds("ripgrep", ["rg", "--no-config", RARE, self.text])},
            lambda: {"gnu_grep_s": self.seconds("GNU grep", ["grep", RARE, self.text])},
        ]
        with self.text.open("rb") as file:
            while file.read(1 << 24):
                pass
        found = {}
        for turn in turns[at % 3 :] + turns[: at % 3]:
            found |= turn()
        return found

    def round(self, at):
        read = disk_speeds(self.asked.command, self.text.parent)["read"]
        found = {"ideal_s": self.text.stat().st_size / read, **self.cold(), **self.warm(at)}
        print(f"round {at + 1}: " + ", ".join(f"{name} {seconds:.3f}" for name, seconds in found.items()), flush=True)
        return {**found, "read_bytes_per_s": read}


def figures(rounds):
    def over(one, other):
        return statistics.median(it[one] / it[other] for it in rounds)

    return {
        "cold_over_ideal": over("cold_s", "ideal_s"),
        "cold_over_c": over("cold_s", "cold_c_s"),
        "warm_over_ripgrep": over("warm_s", "ripgrep_s"),
        "warm_with_start_over_ripgrep": over("warm_with_start_s", "ripgrep_s"),
        "warm_over_gnu_grep": over("warm_s", "gnu_grep_s"),
        **{name: spread([it[name] for it in rounds]) for name in rounds[0]},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=size, default=size("4GB"), metavar="SIZE")
    parser.add_argument("--threads", type=int, default=2)
    common_options(parser)
    asked = parser.parse_args()
    need("fio", "rg", "grep", "cc", asked.command)
    with scratch(asked.dir, "grep-rare") as folder:
        searches = Searches(asked, Path(folder))
        found = figures([searches.round(at) for at in range(asked.rounds)])
        failed = sorted(set(searches.failed))
    print(json.dumps({**found, "bytes": asked.bytes, "rounds": asked.rounds, "failed": failed}))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
