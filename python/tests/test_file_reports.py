"""What jobs on files tell of themselves: the steps of sort, grep and map-reduce, and what a terminal shows of a sort that runs."""

import json
import re
import subprocess
import sys

import pytest
from processes import PATIENCE_S, in_a_terminal
from processes import environment as plain_environment

import brambling as br

RECORDS = 1_000_000


def environment(state):
    """Nobody has probed the machine."""
    return plain_environment(state) | {"XDG_CACHE_HOME": str(state)}


def run(state, *arguments):
    line = [sys.executable, "-m", "brambling", *map(str, arguments)]
    done = subprocess.run(line, env=environment(state), capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done


def sort_in_a_terminal(state, *arguments):
    words = ("-m", "brambling", "sort", *arguments, "--threads", 1)
    return in_a_terminal(words, environment(state) | {"TERM": "xterm"})


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    run(folder / "state", "sort", "--generate", RECORDS, folder / "records")
    return folder, folder / "records"


def steps(told):
    return {step["name"]: step for step in told["phases"]}


def test_a_sort_tells_the_steps_of_the_paper_and_the_bytes_of_its_files(records, tmp_path):
    state, source = records
    size = source.stat().st_size
    told = json.loads(run(state, "sort", source, tmp_path / "out", "--threads", 2, "--json").stdout)
    assert list(steps(told)) == ["read", "partition", "exchange", "sort", "write"]
    # With the samples of keys.
    assert size <= steps(told)["read"]["bytes"] < 1.1 * size
    assert steps(told)["write"]["bytes"] == size
    assert steps(told)["partition"]["bytes"] >= 3 * size and steps(told)["exchange"]["bytes"] == 0
    assert all(step["seconds"] >= 0 and step["ideal_seconds"] is None for step in told["phases"] if step["name"] != "exchange")
    assert 0 < sum(step["seconds"] for step in told["phases"]) <= told["seconds"]
    assert told["stragglers_seconds"] >= 0
    used = {stage["name"]: {use["resource"]: use["amount"] for use in stage["resources"]} for stage in told["stages"]}
    assert used["read"]["disk"] == size and used["sort"]["disk"] == size
    plain = run(state, "sort", source, tmp_path / "again", "--threads", 2)
    assert re.search(r"\n  write +\S+ (m|µ|n)?s +100 MB\n", plain.stdout), plain.stdout
    assert plain.stderr == ""


def test_runs_and_backups_are_bytes_of_files_too(records, tmp_path):
    state, source = records
    size = source.stat().st_size
    told = json.loads(run(state, "sort", source, tmp_path / "out", "--threads", 1, "--memory", "64MB", "--backup", "--json").stdout)
    assert told["run_bytes"] > 0
    assert 2 * size <= steps(told)["read"]["bytes"] < 2.1 * size
    assert steps(told)["write"]["bytes"] == size + 2 * told["run_bytes"]


def test_a_terminal_sees_how_far_a_sort_is_and_is_left_clean(records, tmp_path):
    state, source = records
    _, seen = sort_in_a_terminal(state, source, tmp_path / "out", "--checksums")
    lines = [line for line in re.split(r"[\r\n]", seen) if " of " in line]
    assert lines, seen
    for line in lines:
        found = re.search(r"(\d+) %  (reading|writing)  \S+ \S+ of 200 MB  \S+ [kMG]?B/s", line)
        assert found and int(found[1]) <= 100, line
    assert seen.endswith("\x1b[2K"), seen
    out, seen = sort_in_a_terminal(state, source, tmp_path / "json", "--json")
    assert seen == "" and json.loads(out)["records"] == RECORDS


def test_a_search_ends_with_its_share_of_ideal(tmp_path):
    text = tmp_path / "text"
    text.write_text("to be or not to be\n" * 1_000_000 + "that is the question\n")
    size = text.stat().st_size
    done = run(tmp_path, "grep", "--json", "--stats", "question", text)
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["type"] == "summary"
    data = told["data"]
    assert list(steps(data)) == ["read", "search"]
    # The line at the end of a part ends in the next one.
    assert size <= steps(data)["read"]["bytes"] < 1.1 * size
    assert data["ideal_seconds"] is None and data["share_of_ideal"] is None and data["seconds"] > 0
    assert data["stats"]["bytes_searched"] == size and data["elapsed_total"]["secs"] >= 0
    assert [stage["name"] for stage in data["stages"]][-1] == "search"
    assert re.search(r"\n  search +\S+ (m|µ|n)?s +\d+", done.stderr), done.stderr


def test_a_map_reduce_tells_its_steps(tmp_path):
    text = tmp_path / "text"
    text.write_text("to be or not to be\n" * 100_000)
    counted = br.map_reduce(text, "words", "sum", backup=True)
    found = {step["name"]: step for step in counted.phases}
    assert list(found) == ["read", "map", "exchange", "reduce", "write"]
    assert found["read"]["bytes"] > text.stat().st_size  # With the backup.
    assert found["write"]["bytes"] == 0
    written = br.map_reduce(text, "words", "sum", output=tmp_path / "out")
    found = {step["name"]: step for step in written.phases}
    assert found["read"]["bytes"] == text.stat().st_size
    assert found["write"]["bytes"] == sum(file.stat().st_size for file in written.files)
