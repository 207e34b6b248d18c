#!/usr/bin/env python3
"""
Refuses pages that are hard to read: too long for one sitting, wider than a window, or with file names for texts of links. Of the
page of constants it also checks that its values are those of the code.

    pages.py     fails where a page has one of these, and names it
"""

import re
import sys
from pathlib import Path

import constants

ROOT = Path(__file__).resolve().parents[2]
LINES = 250
WIDTH = 100
# Every answer to a mistake is looked up there, not read from top to bottom.
LONG = {"docs/errors.md"}
# What these blocks hold is typed by readers; what programs print is as wide as they print it.
TYPED = {"python", "rust", "sh", "toml", "yaml"}
FILE_NAME = re.compile(r"\[`?[\w/-]+\.md`?\]\(")


def faults(page, text):
    """What is wrong with a page, by line."""
    lines = text.splitlines()
    for_users = page.startswith("docs/") and not page.startswith("docs/internals/")
    if for_users and page not in LONG and len(lines) > LINES:
        yield f"{page} has {len(lines)} lines, more than {LINES}: make two pages of it"
    fence = None
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            fence = line.removeprefix("```").split(" ")[0].split(",")[0] if fence is None else None
            continue
        if fence is None and FILE_NAME.search(line):
            yield f"{page}:{number}: a link's text is a file's name: say the page's title"
        # A row of a table and a quoted message are one line; what has no space cannot be wrapped.
        prose = fence is None and not line.startswith(("|", ">", "<", "![")) and " " in line.strip()
        if len(line) > WIDTH and (prose or fence in TYPED and page not in LONG):
            yield f"{page}:{number}: {len(line)} columns, more than {WIDTH}"


def main():
    pages = [ROOT / "README.md", ROOT / "python/README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = [fault for page in pages for fault in faults(str(page.relative_to(ROOT)), page.read_text(encoding="utf-8"))]
    found += constants.faults((ROOT / constants.PAGE).read_text(encoding="utf-8"), constants.sources())
    for fault in found:
        print(fault, file=sys.stderr)
    print(f"pages: {len(pages)} pages, {len(found)} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
