"""What the check of pages finds, each case seen."""

import ast
import re

import constants
import pages


def found(text, page="docs/a.md"):
    return list(pages.faults(page, text))


def test_long_pages_are_refused_but_for_internals_and_the_list_of_errors():
    long = "a\n" * 251
    assert len(found(long)) == 1
    assert not found(long, "docs/internals/a.md") and not found(long, "docs/errors.md") and not found("a\n" * 250)


def test_wide_lines_are_refused_where_they_can_be_wrapped():
    wide = "word " * 25
    assert len(found(wide)) == 1 and len(found(f"```python\n{wide}\n```")) == 1
    assert not found(f"| {wide} |") and not found(f"```text\n{wide}\n```") and not found("a" * 120)


def test_a_link_says_a_title():
    assert len(found("see [models.md](models.md)")) == 1 and len(found("see [`docs/a.md`](docs/a.md)")) == 1
    assert not found("see [Models](models.md)")


def test_the_reference_has_every_public_name():
    root = pages.ROOT
    tree = ast.parse((root / "python/brambling/__init__.py").read_text(encoding="utf-8"))
    (names,) = (ast.literal_eval(it.value) for it in tree.body if isinstance(it, ast.Assign) and it.targets[0].id == "__all__")
    text = (root / "docs/reference/brambling.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^::: brambling\.(\w+)$", text, re.MULTILINE))
    # Modules have pages of their own.
    assert shown == set(names) - {"__version__", "coflow", "graph", "kernels", "ml"}


CODE = {
    "a/src/b.rs": "/// Why.\nconst POLL: Duration = Duration::from_micros(75);\npub(super) const ALL_BYTES: usize = 2 * STEP_BYTES;\nconst SLICE_NS: u64 = 100_000;\n"
    "const STEP_BYTES: usize = 1 << 19;\nconst SHORT: Duration = Duration::from_secs(365 * 24);\n",
    "a/src/c.rs": "const ASKS: Duration = POLL;\nimpl Default for It {\n        It {\n            slack: 0.06,\n        }\n}\n",
}
ROWS = [
    "| `POLL` | 75 µs | why | costs | costs | `a/src/b.rs` |",
    "| `ALL_BYTES` | 1 MiB | why | costs | costs | `a/src/b.rs` |",
    "| `SLICE_NS` | 100 µs | why | costs | costs | `a/src/b.rs` |",
    "| `SHORT` | 8,760 s; `a_setting` | why | costs | costs | `a/src/b.rs` |",
    "| `ASKS` | 75 µs | why | costs | costs | `a/src/c.rs` |",
    "| `slack` | 6 % | why | costs | costs | `a/src/c.rs` |",
]


def differs(rows, code=CODE):
    return list(constants.faults("\n".join(rows), code))


def test_constants_are_those_of_the_code():
    assert not differs(ROWS)
    for at, (old, new) in enumerate([("75", "74"), ("1 MiB", "1 KiB"), ("µs", "ms"), ("8,760", "8,761"), ("75 µs", "`POLL`"), ("6 %", "6")]):
        (fault,) = differs([row.replace(old, new, 1) if at == place else row for place, row in enumerate(ROWS)])
        assert f":{at + 1}: " in fault
    (fault,) = differs([*ROWS[:2], ROWS[2].replace("b.rs", "c.rs"), *ROWS[3:]])
    assert "has no constant `SLICE_NS`" in fault
    (fault,) = differs([*ROWS, ROWS[0]])
    assert "has a row already" in fault


def test_every_wait_has_a_name_and_a_row():
    (fault,) = differs(ROWS[1:])
    assert "`POLL` is a time" in fault
    (fault,) = differs(ROWS, CODE | {"a/src/d.rs": "fn wait() {\n    sleep(Duration::from_millis(10));\n}\n"})
    assert "Duration::from_millis(10) has no name" in fault
