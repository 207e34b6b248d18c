import json

import pytest

from peers.agreement import Agreement
from peers.command import exit_status
from peers.report import report, table
from peers.rounds import Options, Outcome
from peers.tests.fakes import workload
from peers.workloads import Measure


def outcomes():
    which = workload("Talks", "Wrong", "Dies", "Hangs")
    ours, talks, wrong, dies, hangs = (Outcome(entry, (0, 1)) for entry in (which.ours, *which.peers))
    for outcome in (ours, talks, wrong):
        outcome.version, outcome.threads = "1.0", 2
    ours.samples_ms = [10.0, 11.0, 20.0]
    talks.samples_ms = [15.0, 1100.0, 20.0]
    talks.agreement = [Agreement("sum", Measure.RELATIVE, 2e-12, 1e-9)]
    wrong.agreement = [Agreement("sum", Measure.RELATIVE, float("inf"), 1e-9)]
    wrong.leave("disagrees", str(wrong.agreement[0]))
    dies.leave("failed", "ended by SIGKILL")
    hangs.leave("skipped", "a list of all primes")
    return which, [ours, talks, wrong, dies, hangs]


def found(which, systems, size="medium"):
    return report(which, Options(size, 2, 3, 1.0), systems)


def test_keys_are_stable():
    all_of_it = json.loads(json.dumps(found(*outcomes()), allow_nan=False))
    assert list(all_of_it) == ["bench", "workload", "size", "shape", "cpu", "threads", "rounds", "nearest", "systems"]
    assert all_of_it["nearest"] == 1.5
    talks = all_of_it["systems"][1]
    assert talks == {
        "name": "Talks",
        "version": "1.0",
        "threads": 2,
        "state": "measured",
        "reason": None,
        "iterations": {"few": 0, "more": 1},
        "ms_per_iteration": {"median": 20.0, "min": 15.0, "max": 1100.0},
        # Round by round: 1.5, 100 and 1.
        "times_ours": {"median": 1.5, "min": 1.0, "max": 100.0},
        "agreement": [
            {"what": "sum", "measure": "largest difference ÷ largest value", "found": 2e-12, "allowed": 1e-9, "holds": True}
        ],
    }
    without = [system for system in all_of_it["systems"] if system["ms_per_iteration"] is None]
    assert [(system["name"], system["state"], system["times_ours"]) for system in without] == [
        ("Wrong", "disagrees", None),
        ("Dies", "failed", None),
        ("Hangs", "skipped", None),
    ]


def test_the_table():
    which, systems = outcomes()
    text = table(found(which, systems) | {"cpu": "a processor"}, which.what)
    assert text.splitlines() == [
        "adding: a sum",
        "  medium: 100 rows, 3 keys   2 threads   a processor",
        "         version  threads  ms an iteration              × ours  agreement with ours",
        "  ours   1.0      2        11               (10–20)",
        "  Talks  1.0      2        20               (15–1,100)  1.5     sum 2e-12 of 1e-09",
        "  Wrong  1.0      disagrees: sum: largest difference ÷ largest value inf, allowed 1e-09",
        "  Dies   –        failed: ended by SIGKILL",
        "  Hangs  –        skipped: a list of all primes",
        "  median of 3 rounds in turn (least–most)",
    ]
    assert "these figures say nothing" in table(found(which, systems, "small"), which.what)


@pytest.mark.parametrize("sample", [0.0, -0.1])
def test_what_took_no_time_has_no_ratio(sample):
    which, systems = outcomes()
    systems[0].samples_ms[1] = sample
    assert found(which, systems)["systems"][1]["times_ours"] is None
    assert found(which, systems)["nearest"] is None
    assert "–       sum" in table(found(which, systems), which.what)


@pytest.mark.parametrize(
    ("without", "ours", "status"),
    [((), "measured", 1), (("Wrong",), "measured", 0), (("Wrong",), "failed", 1), (("Wrong", "Dies", "Hangs"), "measured", 0)],
)
def test_exit_status(without, ours, status):
    which, systems = outcomes()
    systems[0].state = ours
    kept = [outcome for outcome in systems if outcome.entry.name not in without]
    assert exit_status(found(which, kept)) == status
