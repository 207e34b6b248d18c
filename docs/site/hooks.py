"""What the site adds to the pages: the files beside docs/, pictures of programs, and links that work here as there."""

import hashlib
import re
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"
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
    style = (ROOT / "docs/site/site.css").read_text(encoding="utf-8")
    files.append(File.generated(config, "site.css", content=style))
    return files


def on_page_markdown(markdown, page, config, files):
    beside = page.file.src_uri in BESIDE.values()
    markdown = TESTED.sub(r"\1", markdown)
    markdown = RUST.sub(lambda block: HIDDEN.sub("", block[0]), markdown)
    return LINK.sub(lambda link: _link(link, beside), MERMAID.sub(_picture, markdown))


def _picture(block):
    """The picture that was drawn of exactly this text: `docs/site/draw.py` draws those that are missing."""
    name = hashlib.sha256(block[1].encode()).hexdigest()[:12] + ".svg"
    if not (PICTURES / name).is_file():
        raise PluginError(f"docs/pictures/{name} is missing for this picture; run docs/site/draw.py:\n{block[0]}")
    # The text stays for those who cannot see it.
    steps = ", ".join(re.findall(r'\["([^"]*)"\]', block[1]))
    return f'![{steps}](pictures/{name}){{.picture}}'


def _link(link, beside):
    text, target = link.groups()
    # Pages beside docs/ point into it; pages in it point out of it.
    if beside and target.startswith("docs/"):
        return f"[{text}]({target.removeprefix('docs/')})"
    outside = target if beside else target.removeprefix("../")
    if not beside and outside == target or target.startswith(("http:", "https:", "#")):
        return link[0]
    file, _, anchor = outside.partition("#")
    if file in BESIDE:
        return f"[{text}]({BESIDE[file]}{'#' + anchor if anchor else ''})"
    to = ELSEWHERE.get(outside, ELSEWHERE.get(file))
    # Sources have no page: their name is what there is to say.
    return f"[{text}]({to})" if to else text
