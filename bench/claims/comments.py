#!/usr/bin/env python3
"""
How many of the lines of four crates are comments that say why, outside tests.

A comment is a line that begins with `//` and is no documentation, or one behind code. The last line is JSON: the least and the most share
of a crate, in percent.
"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CRATES = ("worker", "exchange", "controller", "program")
COMMENT = re.compile(r"\s*//(?![/!])|.*[;{,)] // ")


def lines(file):
    """A file's lines up to its module of tests."""
    found = file.read_text().splitlines()
    return found[: found.index("#[cfg(test)]")] if "#[cfg(test)]" in found else found


def share(crate):
    sources = (ROOT / "crates" / crate / "src").rglob("*.rs")
    found = [line for file in sources if file.name != "tests.rs" for line in lines(file)]
    return 100 * sum(bool(COMMENT.match(line)) for line in found) / len(found)


def main():
    shares = {crate: share(crate) for crate in CRATES}
    for crate, percent in shares.items():
        print(f"{crate}: {percent:.2f} %")
    print(json.dumps({"least": min(shares.values()), "most": max(shares.values())}))


if __name__ == "__main__":
    main()
