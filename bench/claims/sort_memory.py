#!/usr/bin/env python3
"""
Whether `brambling sort` stays within its budget and a tenth, whatever it sorts.

    sort_memory.py [--bytes 1GB] [--dir DIR] [--command BRAMBLING]

Records of every skew and lines of text, with budgets from a tenth of the input to twice as much,
with and without --backup and --checksums, on one to four threads. The last line is JSON:
`largest_over_budget` is the most that the process had resident, divided by its budget, over all
cases; `cases` has each.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from on_files import RECORD_BYTES, budget, common_options, must, need, said_size, scratch, size  # noqa: E402

SKEWS = ("uniform", "zipf", "equal", "sorted", "reversed")
SHARES = (0.1, 0.3, 1, 2)


def write_lines(records, into):
    """Text of as many lines, whose lengths differ."""
    with records.open("rb") as source, into.open("wb") as out:
        while block := source.read(RECORD_BYTES * 10_000):
            out.write(block.hex("\n", 37).encode())
            out.write(b"\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=size, default=size("1GB"), metavar="SIZE")
    common_options(parser)
    asked = parser.parse_args()
    need(asked.command)
    cases = {}
    with scratch(asked.dir, "sort-memory") as folder:
        folder = Path(folder)
        source, text, out = folder / "in", folder / "text", folder / "out"

        def sort(what, path, memory, *options):
            ran = must([asked.command, "sort", path, out, "--memory", memory, "--tmp", folder, "--json", *options])
            peak = max(ran.peak_rss_bytes, ran.told["peak_rss_bytes"])
            cases[f"{what}, {memory}"] = peak / budget(memory)
            print(f"{what}, {memory}: {peak / 2**20:.0f} MiB", flush=True)
            out.unlink()

        for skew in SKEWS:
            must([asked.command, "sort", "--generate", asked.bytes // RECORD_BYTES, source, "--skew", skew])
            for share in SHARES:
                memory = said_size(round(share * asked.bytes))
                sort(skew, source, memory)
                if skew == "zipf":
                    for threads in (1, 4):
                        sort(f"{skew}, {threads} threads", source, memory, "--threads", threads)
                    sort(f"{skew}, backup and checksums", source, memory, "--backup", "--checksums")
            if skew == "uniform":
                write_lines(source, text)
                for share in SHARES:
                    sort("lines", text, said_size(round(share * text.stat().st_size)), "--lines")
                text.unlink()
    print(json.dumps({"largest_over_budget": max(cases.values()), "cases": cases, "bytes": asked.bytes}))


if __name__ == "__main__":
    main()
