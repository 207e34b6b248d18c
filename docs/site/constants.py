"""
Compares docs/internals/constants.md with the code: each constant of a row stands in the file that the row names and has its value,
and no time that somebody waits stands in the code without a row. `pages.py` calls it.
"""

import math
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/internals/constants.md"
CRATES = ("worker", "exchange", "controller", "engine", "protocol", "memory", "storage")
# Durations for which nobody waits.
NOT_WAITED = {"CERTIFICATES_LAST", "LAST_MAX", "BEHIND"}
ROW = re.compile(r"^\| `(\w+)` \| (.+?) \| .* \| `([\w/.]+)` \|$")
VALUE = re.compile(r"([\d,]+(?:\.\d+)?) ?(\S+)?")
UNITS = {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9, "%": 1e-2, "KiB": 2**10, "MiB": 2**20, "GB": 1e9}
# What a number in the code counts; else the constant's type or its name says it.
DURATIONS = {"secs": 1, "millis": 1e-3, "micros": 1e-6, "nanos": 1e-9}
CONST = re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?const (\w+): ([^=;]+?) = ([^;]+);", re.MULTILINE)
FIELD = re.compile(r"^\s*([a-z]\w*): (\d[\w.]*(?:e-?\d+)?),$", re.MULTILINE)
LITERAL = re.compile(r"Duration::from_\w+\(\d[\d_]*\)")


def sources():
    """The crates' files without their tests, by their path below crates/."""
    found = {}
    for crate in CRATES:
        for path in sorted((ROOT / "crates" / crate / "src").rglob("*.rs")):
            if path.name != "tests.rs" and "tests" not in path.parts:
                text = path.read_text(encoding="utf-8")
                # Tests in the same file are its last module; what is compiled for them alone may stand before.
                found[str(path.relative_to(ROOT / "crates"))] = re.split(r"^#\[cfg\(test\)\]\nmod \w+ \{", text, flags=re.MULTILINE)[0]
    return found


class Code:
    """The constants of the crates."""

    def __init__(self, files):
        self.files = {path: {name: body for name, _, body in CONST.findall(text)} for path, text in files.items()}
        for path, text in files.items():
            for name, body in FIELD.findall(text):
                self.files[path].setdefault(name, body)

    def value(self, path, name):
        """What a constant is: seconds, bytes, or a count."""
        value = self.evaluated(self.files[path][name], path)
        return value * 1e-9 if name.endswith("_NS") else value

    def evaluated(self, body, path):
        body = re.sub(r"if (.+?) \{ (.+?) \} else \{ (.+?) \}", r"(\2) if (\1) else (\3)", body)
        body = re.sub(r"Duration::from_(\w+)\((.+)\)", lambda it: f"({it[2]}) * {DURATIONS[it[1]]}", body)
        body = re.sub(r"(?<=\d)_(?=\d)", "", body)
        names = {it for it in re.findall(r"\b[A-Z][A-Z_]+\b", body)}
        return eval(body, {"__builtins__": {}}, {it: self.named(it, path) for it in names})  # noqa: S307 our own code

    def named(self, name, path):
        """A constant that another one is made of: of the same file, or the only one of its name."""
        homes = [path] if name in self.files[path] else [it for it, constants in self.files.items() if name in constants]
        if len(homes) != 1:
            raise ValueError(f"{name} stands in {len(homes)} files")
        return self.value(homes[0], name)


def said(cell):
    """The number of a cell such as `75 µs; a_setting`; none where there is none."""
    number = VALUE.match(cell)
    return number and float(number[1].replace(",", "")) * UNITS.get((number[2] or "").rstrip(";"), 1)


def faults(text, files):
    """Where the page and the code differ, as lines for a person."""
    code, rows = Code(files), set()
    for line, row in enumerate(text.splitlines(), 1):
        if not row.startswith("| `"):
            continue
        cells = ROW.match(row)
        if not cells:
            yield f"{PAGE}:{line}: a row names a constant, its value, and last its file"
            continue
        name, value, path = cells.groups()
        if name not in code.files.get(path, ()):
            yield f"{PAGE}:{line}: crates/{path} has no constant `{name}`"
            continue
        if (path, name) in rows:
            yield f"{PAGE}:{line}: `{name}` of crates/{path} has a row already"
        rows.add((path, name))
        try:
            real = code.value(path, name)
        except Exception as error:
            yield f"{PAGE}:{line}: the value of `{name}` in crates/{path} cannot be read: {error}"
            continue
        if said(value) is None or not math.isclose(said(value), real, rel_tol=1e-9):
            yield f"{PAGE}:{line}: `{name}` is {real:g} in crates/{path}, and the page says {value}"
    for path, text in files.items():
        for name, kind, body in CONST.findall(text):
            if kind.endswith("Duration") and name not in NOT_WAITED and (path, name) not in rows:
                yield f"crates/{path}: `{name}` is a time that somebody waits, and {PAGE} has no row for it"
        for literal in LITERAL.findall(CONST.sub("", text)):
            yield f"crates/{path}: {literal} has no name: make it a constant, with a row in {PAGE}"
