"""What the check of pages finds, each case seen."""

import ast
import re

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
    assert shown == set(names) - {"__version__", "graph", "kernels", "ml"}
