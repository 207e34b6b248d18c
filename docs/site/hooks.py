"""What the site adds to the pages: the files beside docs/, pictures of programs, and links that work here as there."""

import hashlib
import os
import posixpath
import re
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"
RUSTDOC = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "doc" / "brambling" / "index.html"
# Pages that lie beside docs/, where a reader of the repository looks for them.
BESIDE = {"ARCHITECTURE.md": "architecture.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
# What has no page here.
ELSEWHERE = {"README.md#benches": "benchmarks.md", "README.md": "index.md", "SECURITY.md": None, "LICENSE": None}
MERMAID = re.compile(r"^```mermaid\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
RUST = re.compile(r"^```rust\n.*?^```$", re.MULTILINE | re.DOTALL)
# What says how a block is tested, which the highlighter takes for a fence that is none.
TESTED = re.compile(r"^(```\w+)[ ,][^\n]*$", re.MULTILINE)
# What rustdoc compiles and does not show.
HIDDEN = re.compile(r"^# .*\n", re.MULTILINE)
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files, config):
    for source, page in BESIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    for name in ("site.css", "mark.svg"):
        files.append(File.generated(config, name, content=(ROOT / "docs/site" / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown, page, config, files):
    here = page.file.src_uri
    # Where the page lies in the repository, as its links are written.
    folder = "" if here in BESIDE.values() else posixpath.dirname(f"docs/{here}")
    markdown = TESTED.sub(r"\1", markdown)
    markdown = RUST.sub(lambda block: HIDDEN.sub("", block[0]), markdown)
    if here == "reference/index.md" and RUSTDOC.is_file():
        # docs/site/build.py puts it there when the pages are built, so mkdocs knows no such page.
        markdown = markdown.replace("the crate `brambling`", '<a href="../rust/brambling/index.html">the crate <code>brambling</code></a>')
    markdown = MERMAID.sub(lambda block: _picture(block, here), markdown)
    return LINK.sub(lambda link: _link(link, folder, here), markdown)


def _picture(block, here):
    """The picture that was drawn of exactly this text: `docs/site/draw.py` draws those that are missing."""
    name = hashlib.sha256(block[1].encode()).hexdigest()[:12] + ".svg"
    if not (PICTURES / name).is_file():
        raise PluginError(f"docs/pictures/{name} is missing for this picture; run docs/site/draw.py:\n{block[0]}")
    # The text stays for those who cannot see it.
    steps = ", ".join(re.findall(r'\["([^"]*)"\]', block[1]))
    return f"![{steps}]({_from(here, f'docs/pictures/{name}')}){{.picture}}"


def _link(link, folder, here):
    """The same link between pages of the site, whose files do not lie as those of the repository do."""
    text, target = link.groups()
    if target.startswith(("http:", "https:", "#")):
        return link[0]
    path, _, anchor = target.partition("#")
    file = posixpath.normpath(posixpath.join(folder, path))
    if file in BESIDE:
        to = posixpath.relpath(BESIDE[file], posixpath.dirname(here) or ".")
    elif file.startswith("docs/"):
        to = _from(here, file)
    else:
        whole = f"{file}#{anchor}" if anchor else file
        to, anchor = ELSEWHERE.get(whole, ELSEWHERE.get(file)), ""
        if to is None:
            # Sources have no page: their name is what there is to say.
            return text
        to = posixpath.relpath(to, posixpath.dirname(here) or ".")
    return f"[{text}]({to}{'#' + anchor if anchor else ''})"


def _from(here, file):
    """The address of a file of docs/, seen from a page."""
    return posixpath.relpath(file.removeprefix("docs/"), posixpath.dirname(here) or ".")
