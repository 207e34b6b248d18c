"""Reports of programs, models and scripts: what they say, and how they are asked for."""

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest

import brambling as br
from processes import running


def squares(rows=50_000):
    p = br.Program("squares")
    p.keep(p.map(square, p.load(np.arange(float(rows)))))
    return p


def square(block):
    return block * block


def every_thread(report):
    """Each thread of the report, as JSON tells it."""
    threads = [thread for worker in report.to_dict()["workers"] for thread in worker["threads"]]
    assert threads
    return threads


def adds_up(report):
    for thread in every_thread(report):
        assert sum(thread["parts"].values()) == pytest.approx(thread["wall_seconds"], rel=0.02)
        assert thread["unattributed"] <= 0.05
    return True


def test_a_run_has_a_report():
    result = squares().run()
    report = result.report
    assert report is result.report and adds_up(report)
    told = report.to_dict()
    assert (told["version"], told["program"], told["succeeded"]) == (1, "squares", True)
    assert told["actual_seconds"] == report.actual_seconds >= result.tally["wall_s"]
    assert {stage["name"]: stage["python"] for stage in told["stages"]}["square"] is True
    assert str(report).splitlines()[0] == report.headline
    assert repr(report) == f"<Report: {report.headline}>"
    assert "<html" not in report._repr_html_() and "squares" in report._repr_html_()


def test_a_report_is_saved_by_the_end_of_its_name(tmp_path):
    report = squares().run().report
    for name, begins in [("r.html", "<!doctype html>"), ("r.HTM", "<!doctype html>"), ("r.json", "{"), ("r.txt", report.headline)]:
        report.save(tmp_path / name)
        assert (tmp_path / name).read_text().startswith(begins)
    assert json.loads((tmp_path / "r.json").read_text()) == report.to_dict()
    with pytest.raises(br.BuildError, match=r"r.pdf is no name for a report: give one that ends with .html, .json or .txt"):
        report.save(tmp_path / "r.pdf")
    report.save_trace(tmp_path / "t.json")
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    report.save_trace(tmp_path / "t.pftrace")
    # The first field of a trace is a packet.
    assert (tmp_path / "t.pftrace").read_bytes()[:1] == b"\x0a"


def test_models_and_ranks_have_reports_that_travel():
    X = np.random.default_rng(0).normal(size=(60_000, 8))
    model = br.ml.LogisticRegression(max_iter=10, tol=0).fit(X, (X[:, 0] > 0).astype(float))
    assert adds_up(model.report_)
    stages = {stage["name"]: stage for stage in model.report_.to_dict()["stages"]}
    gradient = {used["resource"]: used["amount"] for used in stages["gradient"]["resources"]}
    passes = gradient["memory bandwidth"] / (X.nbytes + 8 * len(X))
    assert passes == round(passes) >= 10, "each pass over the rows is counted, and nothing else"
    assert str(model.report_).count("of ideal") >= 2
    pickled = pickle.dumps(model)
    # What each thread did when stays behind: a model's pickle is no larger for a longer fit.
    assert len(pickled) < 20_000
    again, report = pickle.loads(pickled).report_.to_dict(), model.report_.to_dict()
    for key in ("actual_seconds", "ideal_seconds", "bound_by", "shares", "resources", "workers", "balance"):
        assert again[key] == report[key], key
    ranks = br.graph.pagerank([0, 1, 2], [1, 2, 0])
    assert adds_up(ranks.report)


def test_the_interpreter_is_named_when_threads_wait_for_it():
    def slow(block):
        return float(sum(x * x for x in block.tolist()))

    p = br.Program("slow")
    with p.loop(3):
        total = p.reduce("sum", p.map(slow, p.load(np.ones(400_000))))
    p.keep(total)
    # A machine that is busy with something else may give other causes as well.
    advice = {it["cause"]: it["text"] for it in p.run(threads=2).report.to_dict()["advice"]}
    assert 'compile the kernel of stage "slow" with numba' in advice["interpreter"]


def test_a_cluster_tells_of_every_worker(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    start = ("cluster", "--workers", "2", "--threads", "1", "--bind", "127.0.0.1:0")
    with running(tmp_path, *start) as (_, address), br.connect(address):
        X = np.random.default_rng(0).normal(size=(60_000, 8))
        report = br.ml.LogisticRegression(max_iter=20, tol=0).fit(X, (X[:, 0] > 0).astype(float)).report_
        assert adds_up(report)
        workers = report.to_dict()["workers"]
        assert [worker["name"] for worker in workers] == ["w1", "w2"]
        assert report.to_dict()["hosts"] == 1
        assert all(thread["wall_seconds"] == pytest.approx(report.actual_seconds, rel=0.05) for thread in every_thread(report))
        assert adds_up(squares().run().report)


# ---- the command


SCRIPT = """
import sys
import numpy as np, brambling as br
for name in ("first", "second"):
    p = br.Program(name)
    p.keep(p.map(np.square, p.load(np.arange(5_000.0))))
    p.run()
print("arguments", *sys.argv[1:])
"""


@pytest.fixture
def script(tmp_path):
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    return file


def run(folder, *arguments):
    return subprocess.run([sys.executable, "-m", "brambling", "run", *map(str, arguments)],
                          cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("before", [True, False])
def test_a_script_is_reported(script, tmp_path, before):
    options = ("--report", "r.html", "--trace", "t.json")
    done = run(tmp_path, *options, script, "5") if before else run(tmp_path, script, "5", *options)
    assert done.returncode == 0, done.stderr
    assert "arguments 5\n" in done.stdout and "report: r.html" in done.stdout
    assert all(f"{name}: " in done.stdout for name in ("first", "second"))
    page = (tmp_path / "r.html").read_text()
    assert page.count("<html") == 1 and "first" in page and "second" in page
    names = {event["args"]["name"] for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"] if event["ph"] == "M"}
    assert {"first on here", "second on here"} <= names


def test_a_report_on_the_terminal_and_as_json(script, tmp_path):
    done = run(tmp_path, "--report", script, "--rows", "5")
    assert "arguments --rows 5\n" in done.stdout and "2 jobs, the longest first" in done.stdout
    done = run(tmp_path, script, "--report", "all.json")
    jobs = json.loads((tmp_path / "all.json").read_text())["jobs"]
    assert [job["program"] for job in jobs] == ["first", "second"], done.stderr
    done = run(tmp_path, script, "--", "--report")
    assert done.stdout == "arguments --report\n"


@pytest.mark.parametrize(("arguments", "code", "told"), [
    (("script.py", "--report=r.pdf"), 2, "r.pdf is no name for a report: give one that ends with .html, .json or .txt"),
    (("script.py", "--report", "nowhere/r.html"), 2, "nowhere/r.html cannot be written: there is no directory nowhere; make it first"),
    (("script.py", "--trace", "folder"), 2, "folder is a directory; give the name of a file"),
    (("nothing.py", "--report"), 2, "no report: the script has run no job"),
    (("fails.py", "--report"), 1, "no report: no job of the script ended well, and a report is of such"),
])
def test_slips(script, tmp_path, arguments, code, told):
    (tmp_path / "nothing.py").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "fails.py").write_text(
        "import brambling as br\np = br.Program('fails')\n"
        "def fail(x):\n    raise ValueError('no such flight')\n"
        "p.keep(p.map(fail, p.load([1.0])))\np.run()\n"
    )
    done = run(tmp_path, *arguments)
    assert (done.returncode, told in done.stderr) == (code, True), done.stderr
