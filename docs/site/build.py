#!/usr/bin/env python3
"""
Builds the site into build/site and refuses what a reader would stumble over: a link or an anchor that leads nowhere (mkdocs),
and a page that fetches anything from another server. Where rustdoc has been built its pages are put beside them.
"""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "site"
RUSTDOC = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "doc"
# Where the content of a page of rustdoc begins, in any of its versions.
CONTENT = re.compile(r'<section id="main-content"[^>]*>')
# What a browser fetches by itself.
FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Fetches(HTMLParser):
    """Collects what a page makes a browser fetch."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        # A canonical address is named, not fetched.
        if tag == "link" and attrs.get("rel") in ("canonical", "next", "prev", "alternate"):
            return
        self.found.append(attrs.get(FETCHED.get(tag)) or "")


def fetched_from_elsewhere(site):
    """Pages with what they fetch from other servers, or do not find."""
    faults = []
    for page in sorted(site.rglob("*.html")):
        reader = Fetches()
        reader.feed(page.read_text(encoding="utf-8"))
        for address in filter(None, reader.found):
            if address.startswith(("http:", "https:", "//")):
                faults.append(f"{page.name} fetches {address}")
            elif not address.startswith(("data:", "/")) and not (page.parent / address.partition("?")[0]).is_file():
                faults.append(f"{page.name} fetches {address}, which is not there")
    for style in sorted(site.rglob("*.css")):
        if "url(http" in style.read_text(encoding="utf-8"):
            faults.append(f"{style.name} fetches from another server")
    return faults


def fences_shown(site):
    """Pages on which a reader sees the marks of a block of code: the highlighter did not know the fence."""
    pages = sorted(site.rglob("*.html"))
    return [f"{page.name} shows a fence as text" for page in pages if "```" in page.read_text(encoding="utf-8")]


def with_rustdoc(site):
    """Copies what rustdoc has made and links its pages with ours. Gives their number, and faults."""
    if not (RUSTDOC / "brambling" / "index.html").is_file():
        return 0, []
    shutil.copytree(RUSTDOC, site / "rust", ignore=shutil.ignore_patterns(".lock"))
    linked = 0
    for page in (site / "rust").rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        begin = CONTENT.search(text)
        if not begin:
            continue
        back = os.path.relpath(site / "reference" / "index.html", page.parent)
        link = f'<p><a href="{back}">Reference for Python, and all pages of Brambling</a></p>'
        page.write_text(text[: begin.end()] + link + text[begin.end() :], encoding="utf-8")
        linked += 1
    return linked, [] if linked else ["no page of rustdoc has room for a link; see CONTENT in docs/site/build.py"]


def main():
    mkdocs = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean"]
    # The theme's own notice about its successor is not for those who build the pages.
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    # Not --quiet: what that silences is not counted by --strict either.
    built = subprocess.run(
        [*mkdocs, "--config-file", ROOT / "docs/site/mkdocs.yml"], env=environment, capture_output=True, text=True
    )
    if built.returncode:
        print(built.stdout + built.stderr, file=sys.stderr)
        return 1
    faults = [f"{fault}; keep what pages need in docs/" for fault in fetched_from_elsewhere(SITE)]
    faults += [f"{fault}; see TESTED in docs/site/hooks.py" for fault in fences_shown(SITE)]
    pages = len(list(SITE.rglob("*.html")))
    of_rust, untied = with_rustdoc(SITE)
    faults += untied
    for fault in faults:
        print(f"docs: {fault}", file=sys.stderr)
    print(f"docs: {pages} pages, and {of_rust} of rustdoc, in {SITE}, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
