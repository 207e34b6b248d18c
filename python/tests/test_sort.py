"""`brambling sort` on a cluster: the bytes of one process, copies on other workers, files of workers of their own, and what goes wrong."""

import json
import re
import signal
import subprocess
import sys

import pytest
from processes import PATIENCE_S, command, environment

RECORDS = 300_000


def sort(state, *arguments, check=True):
    """Its exit code, output and errors."""
    line = [sys.executable, "-m", "brambling", "sort", *map(str, arguments)]
    done = subprocess.run(line, env=environment(state), capture_output=True, text=True, timeout=PATIENCE_S)
    if check:
        assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A cluster of two workers: where its state is, and its address."""
    state = tmp_path_factory.mktemp("two") / "state"
    with command(state, "cluster", "--workers", "2", "--threads", "1", "--bind", "127.0.0.1:0") as process:
        try:
            address = re.search(r"at (\S+:\d+)", process.stdout.readline())[1]
            yield state, address
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def records(two, tmp_path_factory):
    """A file of records, and its bytes in order."""
    folder = tmp_path_factory.mktemp("records")
    sort(two[0], "--generate", RECORDS, folder / "records", "--skew", "zipf")
    sort(two[0], folder / "records", folder / "sorted")
    return folder / "records", (folder / "sorted").read_bytes()


def parts(folder):
    return sorted(it for it in folder.iterdir() if it.is_file())


def joined(folder):
    names = [it.name for it in parts(folder)]
    assert names == [f"part-{number:05}" for number in range(len(names))]
    return b"".join(it.read_bytes() for it in parts(folder))


def test_parts_have_the_bytes_of_one_process(two, records, tmp_path):
    state, address = two
    source, expected = records
    told = json.loads(sort(state, source, tmp_path / "out", "--controller", address, "--checksums", "--json").stdout)
    assert joined(tmp_path / "out") == expected
    assert told["records"] == RECORDS and told["peak_rss_bytes"] > 1 << 20
    assert [it.name for it in tmp_path.iterdir()] == ["out"]
    check = sort(state, "--check", *parts(tmp_path / "out"))
    assert check.stdout.startswith("sorted\n")


def test_a_sort_stays_within_its_budget(tmp_path):
    sort(tmp_path, "--generate", 2_000_000, tmp_path / "records")
    for megabytes, least_runs in ((100, 100_000_000), (300, 1)):
        told = sort(tmp_path, tmp_path / "records", tmp_path / "out", "--memory", f"{megabytes}MB", "--json").stdout
        told = json.loads(told)
        assert told["run_bytes"] >= least_runs
        assert told["peak_rss_bytes"] <= 1.1 * (megabytes << 20), megabytes
        assert sort(tmp_path, "--check", tmp_path / "out").stdout.startswith("sorted\n2000000 records")


def test_copies_lie_with_other_workers(two, records, tmp_path):
    state, address = two
    source, expected = records
    sort(state, source, tmp_path / "out", "--controller", address, "--replication", 2)
    assert joined(tmp_path / "out") == expected
    assert joined(tmp_path / "out" / "copies-1") == expected
    refused = sort(state, source, tmp_path / "more", "--controller", address, "--replication", 3, check=False)
    assert refused.returncode == 1
    assert "--replication 3 needs 3 workers, and there are 2" in refused.stderr
    alone = sort(state, source, tmp_path / "more", "--replication", 2, check=False)
    assert alone.returncode == 1 and "there is 1" in alone.stderr
    assert not (tmp_path / "more").exists()


def test_each_worker_reads_its_own_file(two, records, tmp_path):
    state, address = two
    source, _ = records
    # Both workers see the same disk here: each record comes twice.
    sort(state, source, tmp_path / "out", "--controller", address, "--local", "--checksums")
    sort(state, source, source, tmp_path / "expected")
    assert joined(tmp_path / "out") == (tmp_path / "expected").read_bytes()
    refused = sort(state, source, tmp_path / "no", "--local", check=False)
    assert refused.returncode == 1 and "--controller" in refused.stderr


def test_what_is_in_the_way_is_told_and_stays(two, records, tmp_path):
    state, address = two
    source, _ = records
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("here")
    refused = sort(state, source, tmp_path / "out", "--controller", address, check=False)
    assert refused.returncode == 1 and "out" in refused.stderr
    assert (tmp_path / "out" / "mine").read_text() == "here"
    cut = tmp_path / "cut"
    cut.write_bytes(b"x" * 1_234)
    for local in ([], ["--local"]):
        refused = sort(state, cut, tmp_path / "new", "--controller", address, *local, check=False)
        assert refused.returncode == 1 and "1234 bytes" in refused.stderr, refused.stderr
    assert sorted(it.name for it in tmp_path.iterdir()) == ["cut", "out"]
