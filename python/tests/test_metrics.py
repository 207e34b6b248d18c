"""Metrics of real processes, as Prometheus scrapes them, and who is hostile to them."""

import contextlib
import json
import re
import resource
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from processes import PATIENCE_S, descriptors, doubled, environment, ports_of, resident_kb, running

import brambling as br

# What an honest scrape may take while others are hostile: they are cut off after 5 s.
SOON_S = 2
# A line of the text format 0.0.4 that we write: no timestamps, no other types.
HELP = re.compile(r"# HELP ([a-z_]+) (\S.*)")
TYPE = re.compile(r"# TYPE ([a-z_]+) (counter|gauge)")
LABEL = r'[a-z_]+="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"([a-z_]+)((?:\{{{LABEL}(?:,{LABEL})*\}})?) (-?[0-9.]+)")
PAGE = Path(__file__).parents[2] / "docs/cluster-metrics.md"


def parsed(text):
    """Types by family and values by series; anything that is not as the format says is an error."""
    assert text.endswith("\n")
    types, values, helped, family = {}, {}, None, None
    for line in text.splitlines():
        if found := HELP.fullmatch(line):
            helped, family = found[1], None
            assert helped not in types, line
        elif found := TYPE.fullmatch(line):
            family = found[1]
            assert family == helped and family not in types, line
            types[family] = found[2]
        else:
            found = SAMPLE.fullmatch(line)
            assert found and found[1] == family and found[1] + found[2] not in values, line
            values[found[1] + found[2]] = float(found[3])
    assert all(kind == "counter" for name, kind in types.items() if name.endswith("_total"))
    return types, values


def documented(whose):
    rows = re.findall(r"^\| `(\w+)` \| (counter|gauge) \| .* \| (both|controller|worker) \| ", PAGE.read_text(), re.M)
    return {name: kind for name, kind, of in rows if of in ("both", whose)}


def metrics_address(process):
    """What a process prints below its own address."""
    line = process.stdout.readline()
    while not (found := re.search(r"^metrics at http://(127\.0\.0\.1:[1-9]\d*)/metrics$", line)):
        assert line, process.stderr.read()
        line = process.stdout.readline()
    return found[1]


def scrape(address):
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=SOON_S) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return parsed(answer.read().decode())


def eventually_shows(address, **expected):
    """Figures come with heartbeats, and are kept for half a second."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        _, values = scrape(address)
        if all(values.get(name) == value for name, value in expected.items()):
            return values
        assert time.monotonic() < deadline, values
        time.sleep(0.05)


def test_the_processes_of_a_cluster_tell_prometheus_what_they_count(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    serve = ("--metrics", "127.0.0.1:0")
    with running(tmp_path, "controller", "--bind", "127.0.0.1:0", *serve) as (controller, address):
        of_controller = metrics_address(controller)
        types, before = scrape(of_controller)
        assert types == documented("controller")
        assert before["brambling_workers"] == 0
        worker = ("worker", "--controller", address, "--threads", "1", *serve)
        with running(tmp_path, *worker) as (process, _), br.connect(address) as cluster:
            of_worker = metrics_address(process)
            types, _ = scrape(of_worker)
            assert types == documented("worker")
            tasks = 0
            for _ in range(3):
                tasks += doubled().run().tally["tasks"]
                at_controller = eventually_shows(of_controller, brambling_cluster_tasks_total=tasks)
                at_worker = eventually_shows(of_worker, brambling_tasks_total=tasks)
            assert tasks > 0
            assert at_controller['brambling_jobs_ended_total{result="succeeded"}'] == 3
            status = cluster.status()["workers"][0]
            assert at_controller['brambling_worker_threads{worker="w1"}'] == status["threads"] == 1
            info = f'brambling_worker_info{{worker="w1",host="{status["host"]}"}}'
            assert at_controller[info] == at_worker[info] == 1
            # As the system counts it: what resides changes, but not to another order of magnitude.
            for pid, values in ((controller.pid, at_controller), (process.pid, at_worker)):
                resident = values["process_resident_memory_bytes"] / 1024
                assert resident_kb(pid) / 2 < resident < resident_kb(pid) * 2
                assert 0 < values["process_cpu_seconds_total"] < 600
                assert abs(values["process_open_fds"] - descriptors(pid)) < 20
        # A worker that is ended is gone from the series.
        after = eventually_shows(of_controller, brambling_workers=0, brambling_workers_lost_total=1)
        assert not any('worker="w1"' in series for series in after)


def test_a_cluster_serves_its_controllers_metrics_and_nothing_listens_without_the_flag(tmp_path):
    arguments = ("cluster", "--workers", "2", "--threads", "1", "--bind", "127.0.0.1:0")
    with running(tmp_path, *arguments, "--metrics", "127.0.0.1:0") as (process, _):
        address = metrics_address(process)
        values = eventually_shows(address, brambling_workers=2)
        assert any(series.startswith("brambling_build_info{") and 'role="controller"' in series for series in values)
        assert len(ports_of(process.pid)) == 2
    with running(tmp_path, "controller", "--bind", "127.0.0.1:0") as (process, _):
        assert len(ports_of(process.pid)) == 1


def test_an_address_that_cannot_be_had_is_told_before_anything_starts(tmp_path, shared):
    def complaint(*arguments):
        done = subprocess.run(
            [sys.executable, "-m", "brambling", *arguments], env=environment(tmp_path), text=True,
            capture_output=True, timeout=PATIENCE_S)
        assert (done.returncode, done.stdout) == (1, "")
        return done.stderr

    free = ("--bind", "127.0.0.1:0")
    for arguments in (("controller", *free), ("cluster", "--workers", "1", "--threads", "1", *free)):
        text = complaint(*arguments, "--metrics", shared)
        assert f"cannot serve metrics at {shared}" in text and "--metrics" in text
        assert "`nowhere` is no address" in complaint(*arguments, "--metrics", "nowhere")
        assert not list((tmp_path / "brambling/clusters").glob("*"))
    with running(tmp_path, "controller", *free) as (_, address):
        text = complaint("worker", "--controller", address, "--threads", "1", "--metrics", address)
        assert f"cannot serve metrics at {address}" in text
        status = subprocess.run(
            [sys.executable, "-m", "brambling", "status", "--controller", address], env=environment(tmp_path),
            text=True, capture_output=True, timeout=PATIENCE_S)
        assert json.loads(status.stdout)["workers"] == []


@pytest.fixture
def many_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096 if hard == resource.RLIM_INFINITY else min(4096, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_thousand_connections_that_say_nothing_cost_nothing_that_matters(tmp_path, monkeypatch, many_descriptors):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    arguments = ("cluster", "--workers", "1", "--threads", "1", "--bind", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
    with running(tmp_path, *arguments) as (process, address), contextlib.ExitStack() as held:
        at = metrics_address(process)
        host, port = at.split(":")
        with br.connect(address):
            doubled().run()
            scrape(at)
            before, before_kb = descriptors(process.pid), resident_kb(process.pid)
            slowest = 0.0
            for number in range(1000):
                begun = held.enter_context(socket.create_connection((host, int(port)), timeout=SOON_S))
                with contextlib.suppress(ConnectionError):
                    begun.sendall([b"", b"GET /metrics HTTP/1.1\r\nx: ", b"\x00" * 100][number % 3])
                if number % 100 == 99:
                    start = time.monotonic()
                    scrape(at)
                    assert doubled().run()["x"] == [42] * 4
                    slowest = max(slowest, time.monotonic() - start)
            assert slowest < SOON_S
            assert descriptors(process.pid) <= before + 64 + 10
            assert resident_kb(process.pid) < before_kb + 8192
        assert process.poll() is None


def test_random_bytes_leave_metrics_as_they_are(tmp_path):
    with running(tmp_path, "controller", "--bind", "127.0.0.1:0", "--metrics", "127.0.0.1:0") as (process, _):
        at = metrics_address(process)
        host, port = at.split(":")
        said = [bytes((place * step + 7) % 256 for place in range(3000)) for step in range(1, 60)]
        said += [b"GET " + b"/" * 100_000, b"HEAD /metrics HTTP/1.1\r\n" * 1000, b"\r\n" * 10_000, b"GET /metrics HTTP/1.1\r\n\r\n" * 9_000]
        for text in said:
            with socket.create_connection((host, int(port)), timeout=SOON_S) as hostile, contextlib.suppress(ConnectionError):
                hostile.sendall(text)
                answer = hostile.recv(1 << 16)
                assert not answer or answer.startswith(b"HTTP/1.1 "), text[:100]
        types, _ = scrape(at)
        assert types == documented("controller")
    assert process.returncode == 0
