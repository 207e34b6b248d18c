#!/usr/bin/env python3
"""
Draws the pictures of programs that the pages have as Mermaid, into docs/pictures. Needs npm and Chromium; building the site
needs neither, because the pictures are kept.
"""

import hashlib
import json
import re
import subprocess
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
MERMAID = re.compile(r"^```mermaid\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
PAGE = """<div id="place"></div><script src="package/dist/mermaid.min.js"></script><script>
mermaid.initialize({startOnLoad: false, theme: "neutral", htmlLabels: false, flowchart: {htmlLabels: false}, fontFamily: "sans-serif"});
mermaid.render("picture", %s).then(drawn => { document.getElementById("place").innerHTML = drawn.svg; });
</script>"""


def main():
    wanted = {}
    for page in sorted(DOCS.rglob("*.md")):
        for block in MERMAID.findall(page.read_text(encoding="utf-8")):
            wanted[hashlib.sha256(block.encode()).hexdigest()[:12] + ".svg"] = block
    pictures = DOCS / "pictures"
    pictures.mkdir(exist_ok=True)
    # Others, such as those of draw_model.py, have names of another kind.
    for old in pictures.glob("[0-9a-f]" * 12 + ".svg"):
        if old.name not in wanted:
            old.unlink()
    missing = {name: block for name, block in wanted.items() if not (pictures / name).exists()}
    with tempfile.TemporaryDirectory() as folder:
        if missing:
            subprocess.run("npm pack --silent mermaid@11 && tar xzf mermaid-*.tgz", shell=True, check=True, cwd=folder)
        for name, block in missing.items():
            (Path(folder) / "page.html").write_text(PAGE % json.dumps(block), encoding="utf-8")
            browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom"]
            shown = subprocess.run([*browser, f"file://{folder}/page.html"], check=True, capture_output=True, text=True).stdout
            drawn = re.search(r"<svg.*?</svg>", shown, re.DOTALL)
            if drawn is None:
                raise SystemExit(f"{name}: Mermaid drew nothing of\n{block}")
            # A picture of its own has a width, and no white space around what it is for.
            width, height = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn[0]).groups()
            picture = drawn[0].replace('width="100%"', f'width="{float(width):.0f}" height="{float(height):.0f}"', 1)
            (pictures / name).write_text(picture + "\n", encoding="utf-8")
            print(f"docs/pictures/{name}")


if __name__ == "__main__":
    main()
