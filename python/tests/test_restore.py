"""Snapshots of a cluster that is gone: another cluster, or one process, goes on from them."""

import contextlib
import pickle
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from processes import PATIENCE_S, Process, command, environment, eventually, running

# Rows of the script, a Python value, and a signal. Made slow by a variable that the program does not see.
SCRIPT = """
import sys, time
import numpy as np
import brambling as br

turns, out = int(sys.argv[1]), sys.argv[2]
p = br.Program("long")
rows = p.load(np.arange(60_000.0))
total = p.dataset("total", value={"turns": 0, "sum": 0.0})
step = lambda total, more: {"turns": total["turns"] + 1, "sum": total["sum"] / 2 + more}
with p.loop(while_=lambda total: total["turns"] < TURNS, on=total):
    p.update(total, step, p.reduce("sum", p.map(lambda rows: time.sleep(0.004) or rows.sum(), rows)))
found = p.run()["total"]
open(out, "w").write(repr(found))
"""

# All that it begins with is in the program.
ALONE = """
import sys, time
import numpy as np
import brambling as br

p = br.Program("alone")
x = p.dataset("x", value=np.arange(6.0), partitions=4)
note = p.dataset("note", value=("turns", 0))
kept = lambda note, x: time.sleep(0.005) or (note[0], note[1] + 1)
with p.loop(800):
    p.update(x, lambda x: np.sqrt(x + 1.5))
    p.update(note, kept, p.reduce("sum", x))
result = p.run()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("BRAMBLING_SNAPSHOT_EVERY", "10 turns")
    return tmp_path


def manifests(store):
    return sorted(it for it in store.rglob("manifests/*") if it.is_file())


def lost(folder, text, *arguments, workers=4):
    """A script whose cluster and which itself are killed when there are two snapshots."""
    store, script = folder / "store", folder / "long.py"
    script.write_text(textwrap.dedent(text))
    where = ("--bind", "127.0.0.1:0", "--store", str(store))
    with running(folder, "controller", *where) as (controller, address), contextlib.ExitStack() as stack:
        for _ in range(workers):
            stack.enter_context(running(folder, "worker", "--controller", address, "--threads", "1"))
        runs = [sys.executable, "-m", "brambling", "run", str(script), *arguments]
        there = {**environment(folder), "BRAMBLING_CONTROLLER": address}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        client = stack.enter_context(Process(runs, env=there, text=True, cwd=folder, **pipes))
        eventually(lambda: len(manifests(store)) > 1 or client.poll() is not None)
        assert client.poll() is None, client.communicate()
        controller.send_signal(signal.SIGKILL)
        controller.wait(PATIENCE_S)
        client.kill()
        client.wait(PATIENCE_S)
    return store, script


def called(folder, *arguments, code=0):
    with command(folder, *arguments, cwd=folder) as process:
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code, out + err
    return out + err


def newest(store):
    return f"j1/{int(manifests(store)[-1].name)}"


def test_a_script_goes_on_on_fewer_workers_and_in_one_process(folder):
    text = SCRIPT.replace("TURNS", "400")
    found = {}
    store, script = lost(folder, text, "400", "lost")
    name = newest(store)
    here = ("--bind", "127.0.0.1:0", "--store", str(folder / "other"))
    with running(folder, "cluster", "--workers", "2", "--threads", "1", *here) as (_, address):
        said = called(folder, "restore", name, "--store", str(store), "--on", address, str(script), "400", "there")
        assert "goes on from snapshot cluster-" in said
    called(folder, "restore", name, "--store", str(store), str(script), "400", "here")
    called(folder, "run", str(script), "400", "undisturbed")
    for run in ("there", "here", "undisturbed"):
        found[run] = (folder / run).read_text()
    assert found["there"] == found["here"] == found["undisturbed"] and "400" in found["here"]
    # Without the script its rows are nowhere.
    said = called(folder, "restore", name, "--store", str(store), code=1)
    assert "it begins with data of its script, which no snapshot has" in said and "FILE.py" in said
    assert not list(folder.glob("restored-*"))
    # It does something else now.
    script.write_text(text.replace("/ 2 +", "/ 3 +"))
    said = called(folder, "restore", name, "--store", str(store), str(script), "400", "changed", code=1)
    assert "`long` has changed since snapshot" in said and "its hash was" in said


def test_a_snapshot_alone_is_enough_for_a_program_that_needs_no_script(folder):
    store, script = lost(folder, ALONE)
    script.unlink()
    name = newest(store)
    here = ("--bind", "127.0.0.1:0", "--store", str(folder / "other"))
    with running(folder, "cluster", "--workers", "2", "--threads", "1", *here) as (_, address):
        said = called(folder, "restore", name, "--store", str(store), "--on", address, "--output", "there")
        assert "its results are in there" in said
    said = called(folder, "restore", name, "--store", str(store))
    output = folder / f"restored-{name.replace('/', '-')}"
    assert f"its results are in {output.name}" in said
    expected = np.arange(6.0)
    for _ in range(800):
        expected = np.sqrt(expected + 1.5)
    for results in (folder / "there", output):
        assert pickle.loads((results / "note.pickle").read_bytes()) == ("turns", 800)
        parts = pickle.loads((results / "x.pickle").read_bytes())
        assert len(parts) == 4 and all(np.array_equal(part, expected) for part in parts)
