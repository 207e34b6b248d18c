#!/usr/bin/env python3
"""
Draws the pictures of docs/model.md, into docs/pictures: the figures of Krevat et al. whose values the model gives. Every value
comes from `brambling model --json` of the package beside this Python. Needs matplotlib; building the site does not, because the
pictures are kept.

    .venv/bin/python docs/site/draw_model.py
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt  # noqa: E402

PICTURES = Path(__file__).resolve().parents[1] / "pictures"
# What is drawn in these colours has, in the picture, those of the reader's light or dark.
COLOURS = {
    "paper": ("#010101", "#ffffff", "#1e2129"),
    "ink": ("#020202", "#22252b", "#e4e6eb"),
    "faint": ("#030303", "#d5d8de", "#3d424d"),
    "first": ("#040404", "#5e35b1", "#b39ddb"),
    "second": ("#050505", "#b4560a", "#ffb066"),
    "third": ("#060606", "#00796b", "#5fd0c0"),
}
INK, FAINT, FIRST, SECOND, THIRD = (COLOURS[name][0] for name in ("ink", "faint", "first", "second", "third"))
PAPER = COLOURS["paper"][0]

PETASORT = "--input 1PB --external --backup --network 110MB/s"
SHARES = [
    ("Hadoop TeraSort", "--nodes 1460 --input 1TB --disk-read 260MB/s --disk-write 260MB/s --network 110MB/s", 62),
    ("MapReduce TeraSort", "--nodes 1000 --input 1TB --disk-read 780MB/s --disk-write 780MB/s --network 110MB/s", 68),
    ("MapReduce PetaSort", f"--nodes 4000 --replication 3 --disk-read 780MB/s --disk-write 780MB/s {PETASORT}", 21720),
    ("Hadoop PetaSort", f"--nodes 3658 --replication 2 --disk-read 260MB/s --disk-write 260MB/s {PETASORT}", 58500),
    ("MapReduce grep", "--nodes 1800 --input 1TB --disk-read 80MB/s --disk-write 80MB/s --network 110MB/s --map-ratio 0", 90),
]
NODES = [1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 18, 20, 22, 25]


def ideal_s(options):
    """The ideal time of a setup, in seconds."""
    command = [sys.executable, "-m", "brambling", "model", *options.split(), "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["ideal_seconds"]


def sort_of_4gb_a_node(nodes, network, more=""):
    """The paper's own cluster: one disk a node, 108 MB/s read and 97 MB/s written."""
    return ideal_s(f"--nodes {nodes} --input {4 * nodes}GB --disk-read 108MB/s --disk-write 97MB/s --network {network} {more}")


def tell(axes, x, y, text, colour):
    """A text beside what it is of; no line of the grid goes through it."""
    axes.text(x, y, text, va="center", color=colour, bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1.5})


def bare(axes):
    """Only what is needed to read values."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)
    axes.tick_params(colors=INK, length=0)
    axes.set_axisbelow(True)


def shares():
    """Figure 2: the throughput that was reported, as a share of the ideal."""
    figure, axes = plt.subplots(figsize=(7.2, 3.1))
    for row, (name, options, took) in enumerate(SHARES):
        ideal = ideal_s(options)
        share = 100 * ideal / took
        axes.barh(row, share, color=FIRST, height=0.62)
        text = f"{share:.1f} %"
        if name == "MapReduce grep":
            with_startup = 100 * ideal / 150
            axes.barh(row, with_startup, color=SECOND, height=0.62)
            text += f"; with the minute to start, {with_startup:.1f} %"
        tell(axes, share + 0.5, row, text, INK)
    axes.set_yticks(range(len(SHARES)), [name for name, *_ in SHARES])
    axes.invert_yaxis()
    axes.set_xlim(0, 40)
    axes.set_xticks([0, 10, 20, 30, 40])
    axes.grid(axis="x", color=FAINT, linewidth=0.8)
    axes.set_xlabel("reported throughput, % of the ideal", color=INK)
    bare(axes)
    return figure


def lines(drawn, top):
    """Ideal seconds over nodes; each line has its text at its end."""
    figure, axes = plt.subplots(figsize=(7.2, 3.4))
    for seconds, colour, style, text in drawn:
        axes.plot(NODES, seconds, style, color=colour, linewidth=2.2)
        tell(axes, NODES[-1] + 0.6, seconds[-1], text, colour)
    axes.set_ylim(0, top)
    axes.set_xlim(0, 35)
    axes.set_xticks([1, 5, 10, 15, 20, 25])
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_xlabel("nodes, each sorting 4 GB", color=INK, loc="left")
    axes.set_ylabel("seconds", color=INK)
    bare(axes)
    return figure


def hadoop():
    """Figure 3: the lines of the ideal beside Hadoop."""
    plain = [sort_of_4gb_a_node(nodes, "110MB/s") for nodes in NODES]
    backup = [sort_of_4gb_a_node(nodes, "110MB/s", "--backup") for nodes in NODES]
    return lines([
        (backup, SECOND, "--", f"{backup[-1]:.1f} s with\nbackup write"),
        (plain, FIRST, "-", f"{plain[-1]:.1f} s"),
    ], 150)


def networks():
    """Figures 5 and 6: the lines of the ideal beside Parallel DataSeries."""
    fast = [sort_of_4gb_a_node(nodes, "110MB/s") for nodes in NODES]
    slow = [sort_of_4gb_a_node(nodes, "11MB/s") for nodes in NODES]
    return lines([
        (slow, THIRD, "-", f"{slow[-1]:.1f} s\nat 11 MB/s"),
        (fast, FIRST, "-", f"{fast[-1]:.1f} s\nat 110 MB/s"),
    ], 450)


def save(figure, name):
    path = PICTURES / name
    figure.patch.set_facecolor(PAPER)
    for axes in figure.axes:
        axes.set_facecolor(PAPER)
    figure.tight_layout()
    # Nothing that differs from run to run.
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    svg = path.read_text(encoding="utf-8")
    for colour, (drawn, *_) in COLOURS.items():
        svg = svg.replace(drawn, f"var(--{colour})")
    light, dark = ("".join(f"--{it}:{shades[at]};" for it, shades in COLOURS.items()) for at in (1, 2))
    style = f"<style>svg{{{light}}} @media (prefers-color-scheme: dark) {{ svg{{{dark}}} }}</style>"
    svg, styled = re.subn(r"(<svg [^>]*>)", rf"\1\n {style}", svg, count=1)
    if styled != 1 or re.search(r"(fill|stroke): ?#", svg):
        raise SystemExit(f"{path}: a colour is not one of the two palettes")
    path.write_text(svg, encoding="utf-8")
    print(f"docs/pictures/{name}")


def main():
    plt.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "brambling", "font.family": "sans-serif", "font.size": 11}
    for name, draw in (("model-shares.svg", shares), ("model-hadoop.svg", hadoop), ("model-networks.svg", networks)):
        save(draw(), name)


if __name__ == "__main__":
    main()
