"""What the check of tables and strays finds, each case seen."""

import pytest
import tables

FOUND = [
    {
        "date": "2026-01-02",
        "machine": "a-2",
        "cpu": "A",
        "points": [
            {"bench": "x", "what": "a task", "unit": "ns", "low": 5, "high": 7, "at_most": 6, "bound_by": "b", "would_change": "c"}
        ],
        "series": {"s": {"columns": ["n", "ms"], "rows": [[1, [2.5, 2.0, 1200]]]}},
    },
    {"date": "2026-01-03", "machine": "a-2", "cpu": "A", "points": [{"bench": "x", "what": "a task", "unit": "ns", "low": 5, "high": 6, "at_most": 6}]},
]


def test_the_last_figure_of_a_point_counts_and_the_worst_end_decides():
    assert "5–7 ns" not in tables.machines(FOUND) and "5–6 ns | at most 6: held | 2026-01-03" in tables.machines(FOUND)
    assert "**missed**" in tables.machines(FOUND[:1])
    assert "| a task | 5–7 ns (at most 6) | b | c |" in tables.missed(FOUND[:1])
    assert "a task" not in tables.missed(FOUND)


def test_a_table_is_written_between_its_markers():
    page = "above\n<!-- table: series 2026-01-02 a-2 s -->\nold\n<!-- end -->\nbelow\n"
    fresh = tables.written(page, FOUND)
    assert "| 1 | 2.5 (2.0–1,200) |" in fresh and "old" not in fresh and fresh.endswith("below\n")
    assert tables.written(fresh, FOUND) == fresh


@pytest.mark.parametrize(
    "text",
    ["it takes 5 ns", "5–7 µs", "some 40 ms", "1.03–1.07 × the loop", "reads 48 GB/s", "twice as fast", "3 times as long", "9 % longer", "2 x faster"],
)
def test_a_figure_outside_of_the_tables_is_found(text):
    (fault,) = tables.strays("page.md", f"one\n\n{text}\n", [])
    assert fault.startswith("page.md:3: ")


@pytest.mark.parametrize("text", ["10 M × 20", "after 10 seconds", "`2 × 3`", "```\n5 ns\n```", "40 % of a core", "2.5 GB of rows"])
def test_sizes_and_rules_are_no_figures(text):
    assert not list(tables.strays("page.md", text, []))


def test_what_is_excepted_has_to_be_there():
    excepted = [{"page": "page.md", "text": "waits 5 ms", "why": "a rule"}]
    assert not list(tables.strays("page.md", "it waits\n5 ms", excepted))
    (fault,) = tables.strays("page.md", "it waits", excepted)
    assert "excepts what is not there" in fault


def test_values_of_constants_are_compared_elsewhere():
    row = "| `POLL` | 75 µs | about 30 µs | a | b | `thread.rs` |\n"
    (fault,) = tables.strays(tables.CONSTANTS, row, [])
    assert "30 µs" in fault and len(list(tables.strays("docs/a.md", row, []))) == 2
