"""Whole runs with systems that are none."""

import dataclasses
import os

import pytest

from peers import rounds
from peers.data import prepared
from peers.process import Worker
from peers.rounds import Options, Run
from peers.tests.fakes import workload
from peers.tests.test_process import is_alive


@pytest.fixture
def run(tmp_path):
    def run(which, missing=None, rounds=2, size="small"):
        data = prepared(which.data, which.shapes["small"], tmp_path / "data")
        options = Options(size=size, threads=1, rounds=rounds, deadline=60)
        with Run(which, options, data, tmp_path / "scratch", missing or {}, lambda _: None) as running:
            outcomes = running.measure()
            assert (tmp_path / "scratch").is_dir()
        assert not (tmp_path / "scratch").exists()
        return {outcome.entry.name: outcome for outcome in outcomes}

    return run


@pytest.fixture
def pids(monkeypatch):
    """Of all workers that were started."""
    started = []

    class Noted(Worker):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            started.append(self._process.pid)

    monkeypatch.setattr(rounds, "Worker", Noted)
    return started


def test_each_fault_is_named_and_the_rest_goes_on(run, pids):
    found = run(workload("Talks", "Wrong", "Less", "CannotLoad", "NotThere", "Tires", "Dies"))
    assert {name: (outcome.state, outcome.reason) for name, outcome in found.items()} == {
        "ours": ("measured", None),
        "Talks": ("measured", None),
        "Wrong": ("disagrees", "sum: largest difference ÷ largest value 1.0e-02, allowed 1e-09"),
        "Less": ("disagrees", "sum: largest difference ÷ largest value inf, allowed 1e-09"),
        "CannotLoad": ("failed", "ValueError: no room for the data"),
        "NotThere": ("failed", "ModuleNotFoundError: No module named 'a_package_that_nobody_has'"),
        "Tires": ("failed", "RuntimeError: too tired"),
        "Dies": ("failed", "ended with exit status 3: something is very wrong"),
    }
    assert {name: len(outcome.samples_ms) for name, outcome in found.items() if outcome.samples_ms} == {"ours": 2, "Talks": 2}
    assert len(pids) == len(found)
    assert not any(map(is_alive, pids))
    assert (found["Talks"].version, found["Talks"].threads) == ("1.0", 1)


def test_one_that_hangs_is_ended_with_its_children(run, tmp_path, monkeypatch):
    class Impatient(Worker):
        """Waits less for the one that hangs, once that has been loaded."""

        def ask(self, do, *arguments):
            if do == "solve" and self._log.parent.name == "Hangs":
                self._deadline = 0.5
            return super().ask(do, *arguments)

    monkeypatch.setattr(rounds, "Worker", Impatient)
    found = run(workload("Hangs", "Talks"), rounds=1)
    assert (found["Hangs"].state, found["Hangs"].reason) == ("failed", "no answer to `solve` within 0.5 s (--deadline)")
    assert found["Talks"].state == "measured"
    [child] = (tmp_path / "data").glob("*/child")
    assert not is_alive(child.read_text())


def test_without_ours_nothing_is_compared(run):
    found = run(workload("Talks", "Wrong", ours="Dies"))
    assert found["ours"].state == "failed"
    assert {found[name].state for name in ("Talks", "Wrong")} == {"skipped"}
    assert found["Talks"].reason == "there is no result of ours to compare with"


def test_a_size_that_would_be_absurd_is_skipped_with_its_reason(run):
    which = workload("Talks", "Hangs", absurd={"large": "a list of all primes"})
    which = dataclasses.replace(which, ours=dataclasses.replace(which.ours, absurd={}))
    found = run(which, size="large")
    assert {found[name].state for name in ("Talks", "Hangs")} == {"skipped"}
    assert found["Hangs"].reason == "a list of all primes"
    assert found["ours"].state == "measured"


def test_what_was_not_installed_says_so(run):
    found = run(workload("NotThere"), missing={"a_package_that_nobody_has": "no network"}, rounds=1)
    assert found["NotThere"].reason == "it could not be installed: no network"


def test_settings_of_the_caller_are_not_those_of_the_run(run, monkeypatch):
    """Threads are what was asked for, whatever BRAMBLING_THREADS and OMP_NUM_THREADS say outside."""
    monkeypatch.setenv("BRAMBLING_ISA", "sse4.2")
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    which = workload()
    running = Run(which, Options("small", 3, 1, 1.0), None, None, {}, print)
    environment = running._environment()
    assert "BRAMBLING_ISA" not in environment
    assert {environment[name] for name in ("BRAMBLING_THREADS", "OMP_NUM_THREADS", "POLARS_MAX_THREADS")} == {"3"}
    assert environment["PATH"] == os.environ["PATH"]
