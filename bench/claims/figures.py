#!/usr/bin/env python3
"""
Draws Figures 5, 6 and 8 of the Canary paper from the simulation's numbers.

    figures.py figures.json FOLDER     pictures into FOLDER, and the tables of docs/internals/simulation.md on standard output

Needs matplotlib, which the package's extra `demo` brings.
"""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
# Text stays text, and the same numbers give the same file.
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "brambling", "font.size": 9})

from matplotlib import pyplot  # noqa: E402

# How each curve looks, wherever it stands.
LOOKS = {
    "ideal": {"label": "kernels alone, spread evenly", "color": "0.6", "linestyle": ":"},
    "alone": {"label": "as many workers, each alone", "color": "0.6", "linestyle": ":"},
    "relayed": {"label": "local", "color": "tab:purple", "marker": "o"},
    "direct": {"label": "local, straight", "color": "tab:blue", "marker": "s"},
    "paper": {"label": "local, with the paper's 0.7 µs a task", "color": "tab:green", "marker": "^"},
    "rpc": {"label": "central, at our RPC's rate", "color": "tab:orange", "marker": "v"},
    "spark": {"label": "central, at Spark's 2,600 a second", "color": "tab:red", "marker": "x"},
    "slow": {"label": "the same, kernels as slow as Spark's", "color": "tab:brown", "marker": "+"},
}


def axes(wide, titles, x, ticks):
    """Axes side by side with both scales logarithmic."""
    figure, all_axes = pyplot.subplots(1, wide, figsize=(4.6 * wide, 3.6), layout="constrained", squeeze=False)
    for each, title in zip(all_axes[0], titles):
        each.set_xscale("log", base=2)
        each.set_yscale("log")
        each.set_xticks(ticks, [str(tick) for tick in ticks])
        each.minorticks_off()
        each.set_xlabel(x)
        each.set_title(title, fontsize=9)
        each.grid(alpha=0.3)
    return figure, all_axes[0]


def curves(each, rows, x, fields):
    for field, look in fields.items():
        each.plot([row[x] for row in rows], [row[field] for row in rows], markersize=4, linewidth=1.2, **LOOKS[look])


def save(figure, last, folder, name):
    handles, labels = last.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    figure.savefig(folder / name, metadata={"Date": None})
    pyplot.close(figure)


TIMES = {"ideal_ms": "ideal", "relayed_ms": "relayed", "direct_ms": "direct", "central_rpc_ms": "rpc"}
TIMES |= {"central_spark_ms": "spark", "spark_ms": "slow"}
RATES = {"relayed_tasks_per_s": "relayed", "central_rpc_tasks_per_s": "rpc"}
RATES |= {"central_spark_tasks_per_s": "spark", "spark_tasks_per_s": "slow"}
THROUGHPUT = {"alone": "alone", "relayed": "relayed", "direct": "direct", "paper_costs": "paper"}
THROUGHPUT |= {"central_rpc": "rpc", "central_spark": "spark"}


def draw(shown, folder):
    rows = shown["figure_5"]
    figure, (each,) = axes(1, ["Tasks a second, scheduling at most 10 % of a core"], "workers", [row["workers"] for row in rows])
    curves(each, rows, "workers", THROUGHPUT)
    save(figure, each, folder, "figure-5.svg")

    both = shown["figure_6"]
    ticks = [row["workers"] for row in both["logistic"]]
    titles = ["Logistic regression, ms an iteration", "k-means, ms an iteration"]
    figure, all_axes = axes(2, titles, "workers", ticks)
    for each, rows in zip(all_axes, (both["logistic"], both["kmeans"])):
        curves(each, rows, "workers", TIMES)
    save(figure, all_axes[1], folder, "figure-6.svg")

    rows = shown["figure_8"]
    titles = ["ms an iteration, 32 workers", "Tasks a second"]
    figure, all_axes = axes(2, titles, "partitions a core", [row["partitions"] for row in rows])
    curves(all_axes[0], rows, "partitions", TIMES)
    curves(all_axes[1], rows, "partitions", RATES)
    save(figure, all_axes[0], folder, "figure-8.svg")


def digits(value):
    """Three digits, thousands apart."""
    if value >= 100:
        return f"{round(value, 3 - len(str(int(value)))):,.0f}"
    return f"{value:.3g}"


def table(rows, first, fields):
    names = [first, *fields.values()]
    print("| " + " | ".join(names) + " |\n|" + "---|" * len(names))
    for row in rows:
        values = [str(row[first]), *(digits(row[field]) for field in fields)]
        print("| " + " | ".join(values) + " |")
    print()


def tables(shown):
    millions = [
        {key: value if key == "workers" else value / 1e6 for key, value in row.items()} for row in shown["figure_5"]
    ]
    named = {"alone": "alone × workers", "relayed": "local", "direct": "local, straight"}
    named |= {"paper_costs": "the paper's cost", "central_rpc": "central, our RPC", "central_spark": "central, 2,600/s"}
    table(millions, "workers", named)
    named = {"ideal_ms": "kernels alone", "relayed_ms": "local", "direct_ms": "local, straight"}
    named |= {"central_rpc_ms": "central, our RPC", "central_spark_ms": "central, 2,600/s", "spark_ms": "Spark's kernels too"}
    for name, rows in shown["figure_6"].items():
        print(f"{name}\n")
        table(rows, "workers", named)
    table(shown["figure_8"], "partitions", named)
    named = {"relayed_tasks_per_s": "local", "central_rpc_tasks_per_s": "central, our RPC"}
    named |= {"central_spark_tasks_per_s": "central, 2,600/s", "spark_tasks_per_s": "Spark's kernels too"}
    table(shown["figure_8"], "partitions", named | {"spark_idle": "its idle share"})


def main():
    numbers, folder = (Path(arg) for arg in sys.argv[1:3])
    shown = json.loads(numbers.read_text(encoding="utf-8"))
    draw(shown, folder)
    tables(shown)
    print(f"our RPC: {shown['rpc_tasks_per_s']:,.0f} tasks a second; pictures in {folder}")


if __name__ == "__main__":
    main()
