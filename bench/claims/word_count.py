#!/usr/bin/env python3
"""
Word count of a text of unequal words: `br.map_reduce` beside Polars, DuckDB and PySpark, by
bench/peers in its own environment.

    word_count.py [--size small|medium|large] [--rounds 7]

The text is read from the page cache, and what each system counts is compared word by word before
anything is timed. The last line is JSON: `over_polars` and its like are our time divided by theirs,
the median of the rounds' ratios; `systems` is what bench/peers says of each. Size medium is 1 GB.
The exit code is 1 if ours failed, a count differs, or Polars was not measured.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=("small", "medium", "large"), default="medium")
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    words = [
        sys.executable,
        str(ROOT / "bench/peers"),
        "--of",
        "word-count",
        "--size",
        asked.size,
        "--rounds",
        str(asked.rounds),
        "--json",
    ]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout.strip():
        sys.exit(f"bench/peers ended with {done.returncode} and found nothing")
    found = json.loads(done.stdout.splitlines()[-1])
    over = {}
    for system in found["systems"][1:]:
        name = re.sub(r"\W+", "_", system["name"].split(",")[0].lower())
        # Rounds with one ratio each; the median of the inverses is the inverse of the median where rounds are odd in number.
        over[f"over_{name}"] = 1 / system["times_ours"]["median"] if system["times_ours"] else None
    print(json.dumps({**over, "bytes": found["shape"]["bytes"], "rounds": asked.rounds, "systems": found["systems"]}))
    sys.exit(done.returncode or over["over_polars"] is None)


if __name__ == "__main__":
    main()
