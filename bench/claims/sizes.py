#!/usr/bin/env python3
"""
How large the house is beside an older version: `sizes.py BASE`.

Lines of Rust outside tests, here and at BASE; files of worker and exchange above 450 lines, and functions of theirs above 70. A file's lines
end where its module of tests begins. The last line is JSON, whose `faults` counts what is too much.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE_MAX, FUNCTION_MAX = 450, 70
FOLDERS = ("crates/worker/src/", "crates/exchange/src/")
FUNCTION = re.compile(r"^( *)(pub(\([\w:]+\))? )?(const |async |unsafe |extern \"C\" )*fn (\w+)")


def listed(commit):
    command = ["git", "ls-tree", "-r", "--name-only", commit] if commit else ["git", "ls-files"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return [it for it in names if it.endswith(".rs") and not {"tests", "fuzz", "examples"} & set(it.split("/")) and not it.endswith("/tests.rs")]


def lines(commit, name):
    if commit:
        text = subprocess.run(["git", "show", f"{commit}:{name}"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    else:
        text = (ROOT / name).read_text()
    found = text.splitlines()
    return found[: found.index("#[cfg(test)]")] if "#[cfg(test)]" in found else found


def long_functions(name, found):
    """Functions whose closing brace, at their own indent, stands more than so many lines below."""
    for at, line in enumerate(found):
        begins = FUNCTION.match(line)
        # A declaration ends before a body begins.
        if begins is None or not next(it for it in found[at:] if it.endswith(("{", "}", ";"))).endswith("{"):
            continue
        end = next((below for below in range(at, len(found)) if found[below] == begins[1] + "}"), at)
        if end - at + 1 > FUNCTION_MAX:
            yield f"{name}: {begins[5]} has {end - at + 1} lines"


def main():
    base = sys.argv[1]
    before = sum(len(lines(base, name)) for name in listed(base))
    faults, here = [], 0
    for name in listed(None):
        found = lines(None, name)
        here += len(found)
        if name.startswith(FOLDERS):
            if len(found) > FILE_MAX:
                faults.append(f"{name} has {len(found)} lines")
            faults += long_functions(name, found)
    if here > before:
        faults.append(f"{here} lines of Rust outside tests, {before} before")
    print(*faults, sep="\n")
    print(json.dumps({"faults": len(faults), "lines": here, "lines_before": before}))


if __name__ == "__main__":
    main()
