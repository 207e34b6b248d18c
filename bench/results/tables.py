#!/usr/bin/env python3
"""
Writes the tables of measurements in the pages, from the files beside this one, and finds figures that stand elsewhere.

    tables.py            writes the tables anew
    tables.py --check    writes nothing; fails where a table is not what would be written, or a figure strays

A page names a table between `<!-- table: NAME -->` and `<!-- end -->`. A file of results is called DATE-MACHINE.json and holds
`points` (a figure, its unit and its bar) and `series` (tables of figures that belong together). README.md beside it has the rest.
"""

import json
import re
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MARKED = re.compile(r"(<!-- table: (.+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
# Values of constants: docs/site/constants.py compares them with the code.
VALUES = re.compile(r"^(\| `\w+` )\| [^|]* \|", re.MULTILINE)
CONSTANTS = "docs/internals/constants.md"
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
NUMBER = r"\d[\d.,]*(?:[–-]\d[\d.,]*)?"
WORDS = r"two|three|four|five|six|seven|eight|nine|ten"
# What reads like something measured: times below a second, rates, and how many times as fast or as long.
FIGURES = re.compile(
    rf"{NUMBER}\s?(?:ns|µs|us|ms|nanoseconds|microseconds|milliseconds)\b"
    rf"|{NUMBER}\s(?:GB/s|MB/s|Gbit/s|GFLOP/s)"
    rf"|{NUMBER}\s?×(?!\s?\d)"
    rf"|\b(?:{NUMBER}|{WORDS})\stimes\s(?:as\s(?:fast|long|slow|much|many)|faster|slower|longer)"
    rf"|\b(?:twice|half)\sas\s(?:fast|long|slow)"
    rf"|{NUMBER}\s?%\s(?:faster|slower|longer|less\stime|more\stime|of\sthe\s(?:read\s)?bandwidth)"
    rf"|\d x faster"
)


def results():
    """Every file of results, oldest first."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(HERE.glob("*.json"))]
    for path, each in zip(sorted(HERE.glob("*.json")), found):
        if path.stem != f"{each['date']}-{each['machine']}":
            raise SystemExit(f"{path.name}: it says {each['date']} and {each['machine']}")
    return found


def newest(found, machine=None):
    """The points of a machine, or of all, with their dates: of the same point the last one measured there."""
    points = {}
    for each in found:
        for point in each.get("points", []):
            if machine in (None, each["machine"]):
                key = (each["machine"], point["bench"], point["what"], point["unit"])
                points[key] = point | {"date": each["date"], "machine": each["machine"], "cpu": each["cpu"]}
    return list(points.values())


def holds(point):
    """Whether the worst of a point's figures keeps its bar; None where there is no bar."""
    if "at_most" in point:
        return point["high"] <= point["at_most"]
    if "at_least" in point:
        return point["low"] >= point["at_least"]
    return None


def number(value):
    return f"{value:,}" if isinstance(value, int) else str(value)


def cell(value):
    match value:
        case None:
            return ""
        case [median, least, most]:
            return f"{number(median)} ({number(least)}–{number(most)})"
        case str():
            return value
        case _:
            return number(value)


def range_of(point):
    low, high = number(point["low"]), number(point["high"])
    return f"{low if low == high else f'{low}–{high}'} {point['unit']}"


def bar_of(point):
    if "at_most" in point:
        return f"at most {number(point['at_most'])}"
    return f"at least {number(point['at_least'])}" if "at_least" in point else ""


def rows(columns, body):
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "".join(f"{line}\n" for line in lines + ["| " + " | ".join(map(cell, row)) + " |" for row in body])


def machine(found, name):
    """All that was measured on a kind of machine."""
    body, above = [], None
    for point in sorted(newest(found, name), key=lambda point: (point["bench"], point["what"])):
        verdict = {True: ": held", False: ": **missed**", None: ""}[holds(point)]
        same = (point["bench"], point["what"])
        begin = ["", ""] if same == above else [f"`{same[0]}`", same[1]]
        body.append([*begin, range_of(point), bar_of(point) + verdict, point["date"]])
        above = same
    return rows(["bench", "what", "figure", "bar", "measured"], body)


def machines(found):
    """One table for each kind of machine, under its name."""
    names = {each["machine"]: each["cpu"] for each in found if "points" in each}
    return "\n".join(f"### {cpu}\n\n{machine(found, name)}" for name, cpu in sorted(names.items(), key=lambda it: it[1]))


def missed(found):
    """What misses its bar: the figure, what bounds it, and what would change it."""
    body = []
    for point in newest(found):
        if holds(point) is False:
            body.append([point["what"], f"{range_of(point)} ({bar_of(point)})", point["bound_by"], point["would_change"]])
    return rows(["what", "figure (bar)", "what bounds it", "what would change it"], body)


def series(found, date, of, name):
    """A table of figures as it was measured."""
    (each,) = (each for each in found if (each["date"], each["machine"]) == (date, of))
    table = each["series"][name]
    return rows(table["columns"], without_repeats(table["rows"]) if name == "peers" else table["rows"])


def without_repeats(body):
    """The same rows; what the row above says in the first column stands there once."""
    shown, above = [], None
    for first, system, *rest in body:
        ours = f"**{system}**" if first != above else system
        shown.append(["" if first == above else first, ours, *rest])
        above = first
    return shown


def beside(found):
    """Other systems beside ours, by how many times as long they take. Of each workload the fastest of them decides."""
    (last,) = [each for each in found if "peers" in each.get("series", {})][-1:]
    others = {}
    for workload, system, _, ratio in last["series"]["peers"]["rows"]:
        # Keys that count from 0 are another workload, which is ours and NumPy's alone.
        if ratio is not None and "keys that count" not in system:
            others.setdefault(workload, []).append((ratio, system))
    body = []
    for workload, systems in others.items():
        fastest = min(systems)[0]
        verdict = "faster" if fastest > 1.2 else "**slower**" if fastest < 0.8 else "alike"
        body.append([workload, verdict, "; ".join(f"{system}: {number(ratio)}\N{NO-BREAK SPACE}×" for ratio, system in sorted(systems))])
    return rows(["an iteration of", "Brambling is", "others take, of our time"], body)


TABLES = {"machines": machines, "missed": missed, "series": series, "beside": beside}


def written(text, found):
    """The page with its tables as the results give them."""

    def fill(marked):
        begin, words, _, end = marked.groups()
        name, *arguments = words.split()
        return begin + TABLES[name](found, *arguments) + end

    return MARKED.sub(fill, text)


def strays(page, text, excepted):
    """Figures that stand in no table of results and in no line of not-measured.toml."""
    without = MARKED.sub(lambda marked: "\n" * marked[0].count("\n"), text)
    without = FENCED.sub(lambda block: "\n" * block[0].count("\n"), without)
    if page == CONSTANTS:
        without = VALUES.sub(r"\1| |", without)
    for each in excepted:
        if each["page"] != page:
            continue
        # Lines are wrapped anywhere.
        found = re.search(r"\s+".join(map(re.escape, each["text"].split())), without)
        if not found:
            yield f"{page}: not-measured.toml excepts what is not there: {each['text']!r}"
            continue
        without = without[: found.start()] + re.sub(r"\S", "_", found[0]) + without[found.end() :]
    for figure in FIGURES.finditer(without):
        line = without.count("\n", 0, figure.start()) + 1
        said = " ".join(figure[0].split())
        yield f"{page}:{line}: `{said}` stands outside of the tables; move it to bench/results, or name it in not-measured.toml"


def pages():
    """What is checked: the changelog tells history, and the architecture has its own checks."""
    return [ROOT / "README.md", ROOT / "python/README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main(arguments):
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    found = results()
    excepted = tomllib.loads((HERE / "not-measured.toml").read_text(encoding="utf-8"))["not-measured"]
    faults = [f"not-measured.toml: no page {each['page']}" for each in excepted if not (ROOT / each["page"]).is_file()]
    for path in pages():
        page, text = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        fresh = written(text, found)
        if arguments and fresh != text:
            faults.append(f"{page}: a table is not what bench/results has; `python3 bench/results/tables.py` writes it")
        elif fresh != text:
            path.write_text(fresh, encoding="utf-8")
        faults += strays(page, fresh, excepted)
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"tables: {len(found)} files of results, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
