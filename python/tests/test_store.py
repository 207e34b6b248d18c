"""Scripts that keep their jobs in a store: killed, and started again with the same command."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import brambling as br

PATIENCE_S = 60

PROGRAM = """
    import sys
    import time

    import numpy as np

    import brambling as br

    p = br.Program("means")
    x = p.load(np.random.default_rng(SEED).normal(size=(20_000, 4)))
    centre = p.dataset("centre", value=np.zeros(4))
    # Changed in place by its kernel, and no array.
    seen = p.dataset("seen", value={"turns": 0, "first": None})


    def pull(rows, centre):
        time.sleep(0.001)
        return np.tanh(rows - centre).sum(axis=0)


    def step(centre, total):
        return centre + total / 1e6


    def note(seen, centre):
        seen["turns"] += 1
        if seen["first"] is None:
            seen["first"] = {float(centre[0])}
        return seen


    with p.loop(TURNS):
        local = p.broadcast(centre, like=x)
        p.update(centre, step, p.reduce("sum", p.map(pull, x, local)))
        p.update(seen, note, centre)
    result = p.run(store=sys.argv[1], snapshot_every="150ms")
    print("bits", result[centre].tobytes().hex(), result[seen])
    AFTER
"""

CALLS = """
    import sys

    import brambling as br

    calls = []
    p = br.Program("calls")
    x = p.dataset("x", value=1.0)
    with p.loop(5):
        p.update(x, lambda x: calls.append(x) or x * 2)
    assert p.run()[x] == 32
    print("calls", len(calls))
    sys.exit(3)
"""

LOCKED = """
    import sys
    import threading
    import time

    import numpy as np

    import brambling as br

    p = br.Program("locked")
    x = p.load(np.ones(100))
    locked = p.map(lambda rows: (threading.Lock(), rows.sum()), x)
    turns = p.dataset("turns", value=0)
    with p.loop(400):
        p.update(turns, lambda turns: time.sleep(0.002) or turns + 1)
    p.keep(locked)
    result = p.run(store=sys.argv[1], snapshot_every="50ms")
    print(result[turns], [total for _, total in result[locked]])
    sys.exit(3)
"""

KMEANS = """
    import hashlib

    import numpy as np

    import brambling as br

    x = np.random.default_rng(1).normal(size=(300_000, 20))
    model = br.ml.KMeans(n_clusters=30, max_iter=400, tol=0, n_init=1, random_state=3).fit(x)
    print("bits", hashlib.sha256(model.cluster_centers_.tobytes()).hexdigest(), model.n_iter_)
"""


class Script:
    """A script, and the store of its jobs."""

    def __init__(self, directory, text, command=None, **values):
        self.directory, self.store = directory, directory / "store"
        self.path = directory / "script.py"
        self.write(text, **values)
        self.command = command or [sys.executable, self.path, self.store]

    def write(self, text, seed=3, turns=250, after="pass"):
        text = textwrap.dedent(text).replace("SEED", str(seed)).replace("TURNS", str(turns)).replace("AFTER", after)
        self.path.write_text(text)

    def start(self):
        return subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.directory)

    def run(self, code=0):
        done = self.start()
        out, told = done.communicate(timeout=PATIENCE_S)
        assert done.returncode == code, told
        return out, told

    def manifests(self):
        return sorted(self.store.glob("*/*/manifests/*"), key=lambda path: path.name)

    def killed_after(self, number, of=""):
        """Kills it when a job has a snapshot of this number."""
        process = self.start()
        until = time.monotonic() + PATIENCE_S
        while not any(int(path.name) >= number for path in self.manifests() if of in str(path)):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until, f"no snapshot {number}"
            time.sleep(0.01)
        process.kill()
        process.communicate()


@pytest.fixture
def script(tmp_path):
    return Script(tmp_path, PROGRAM)


def test_a_killed_script_goes_on_and_ends_with_the_same_bits(script):
    expected, told = script.run()
    assert told == ""
    # It has ended: nothing is left.
    assert list(script.store.iterdir()) == []
    script.killed_after(2)
    script.killed_after(4)
    out, told = script.run()
    assert out == expected
    assert told.startswith("brambling: `means` goes on from its snapshot: ")
    assert int(told.split("snapshot: ")[1].split()[0]) > 0
    assert list(script.store.iterdir()) == []


def test_what_has_ended_is_read(script):
    script.write(PROGRAM, turns=20, after="raise SystemError('later')")
    first, _ = script.run(code=1)
    # The script did not reach its end: its results stay, and are read.
    # On a busy machine a snapshot came before them.
    assert len(script.manifests()) in (1, 2)
    again, told = script.run(code=1)
    assert again == first
    assert "goes on" not in told


def test_fresh_ignores_what_is_there(tmp_path):
    command = [Path(sys.executable).parent / "brambling", "run", "--store", tmp_path / "store"]
    script = Script(tmp_path, CALLS, command=[*command, tmp_path / "script.py"])
    assert script.run(code=3)[0] == "calls 5\n"
    assert script.run(code=3)[0] == "calls 0\n"
    script.command = [*command, "--fresh", tmp_path / "script.py"]
    assert script.run(code=3)[0] == "calls 5\n"


def test_what_cannot_be_pickled_is_told_and_not_kept(tmp_path):
    script = Script(tmp_path, LOCKED)
    expected, told = script.run(code=3)
    assert told.count("no snapshot was taken, and the job goes on: store ") == 1
    assert "saving partition 0 of `" in told
    assert "cannot pickle '_thread.lock' object" in told
    assert "the results of `locked` are not kept: store " in told
    # Nothing is there that would be read.
    assert script.run(code=3)[0] == expected


def test_a_fit_of_kmeans_goes_on(tmp_path):
    command = [Path(sys.executable).parent / "brambling", "run"]
    script = Script(tmp_path, KMEANS, command=[*command, tmp_path / "script.py"])
    expected, _ = script.run()
    script.command = [*command, "--store", script.store, script.path]
    os.environ["BRAMBLING_SNAPSHOT_EVERY"] = "20ms"
    try:
        script.killed_after(2, of="k-means-")
        out, _ = script.run()
    finally:
        del os.environ["BRAMBLING_SNAPSHOT_EVERY"]
    assert out == expected
    assert list(script.store.iterdir()) == []


def test_other_data_and_another_program_begin_at_their_start(script):
    script.killed_after(1)
    script.write(PROGRAM, seed=4)
    _, told = script.run()
    assert "is not used: the input" in told
    assert "has changed since; the job begins at its start" in told
    script.write(PROGRAM)
    script.killed_after(1)
    script.write(PROGRAM, turns=251)
    _, told = script.run()
    assert "is of another program, which has changed since: this one begins at its start" in told
    # It has ended well: what the other one had left is gone as well.
    assert list(script.store.iterdir()) == []


def test_a_store_that_cannot_be_one_is_refused_and_named(tmp_path):
    (tmp_path / "file").write_text("no directory")
    p = br.Program("p")
    p.dataset("x", value=1.0)
    with pytest.raises(br.StoreError, match=r"file/below: opening it: "):
        p.run(store=tmp_path / "file" / "below")
    with pytest.raises(br.SettingsError, match=r'store = "gs://bucket" is not usable: there is no store for gs://; give a directory, or s3://'):
        p.run(store="gs://bucket")
    with pytest.raises(br.SettingsError) as refused:
        p.run(store="s3://key:secret@bucket/x")
    assert "names no bucket" in str(refused.value)
    assert "secret" not in str(refused.value)
    with pytest.raises(br.SettingsError, match=r"give a time such as 10s, 500ms or 2min, a number of turns such as `20 turns`, or off"):
        p.run(store=tmp_path, snapshot_every="often")


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system needs root")
def test_a_full_store_is_told_and_ends_no_job(script):
    expected, _ = script.run()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", script.store], check=True)
    try:
        out, told = script.run()
    finally:
        subprocess.run(["umount", script.store], check=True)
    assert out == expected
    line = "no snapshot was taken, and the job goes on: store "
    assert told.count(line) == 1
    assert "no space is left; free some, or name another store with the setting `store`" in told


DEMO = """
    import sys

    from brambling.examples import flights

    sys.argv = ["flights", "--pictures", "pictures"]
    flights.main()
    sys.exit(3)
"""


def test_results_that_are_read_have_the_report_of_their_run(tmp_path):
    command = [Path(sys.executable).parent / "brambling", "run", "--store", tmp_path / "store", tmp_path / "script.py"]
    script = Script(tmp_path, DEMO, command=command)
    first, told = script.run(code=3)
    again, _ = script.run(code=3)
    assert told == ""


    def counted(text):
        # What is measured when it is told is another matter.
        return [line for line in text.splitlines() if "to read)" not in line and "% of ideal" not in line and "share of ideal" not in line]

    assert counted(again) == counted(first)
    assert len(counted(first)) > 20


MANY = """
    import os
    import sys

    import brambling as br

    for job in range(40):
        p = br.Program(f"job {job}")
        x = p.dataset("x", value=1.0)
        p.update(x, lambda x: x + 1)
        p.run(store=sys.argv[1])
    print(sum("store" in os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{fd}")))
    raise SystemError("later")
"""


def test_a_script_of_many_jobs_has_one_lock(tmp_path):
    script = Script(tmp_path, MANY)
    out, _ = script.run(code=1)
    assert out == "1\n"
    (locks,) = script.store.glob("*.locks")
    assert [path.name for path in locks.iterdir()] == ["1"]


def test_what_others_of_the_command_have_left_goes_with_a_good_end(script):
    both = [script.start(), script.start()]
    until = time.monotonic() + PATIENCE_S
    while len({path.parents[2] for path in script.manifests()}) < 2:
        assert time.monotonic() < until, "no two places"
        time.sleep(0.01)
    for process in both:
        process.kill()
        process.communicate()
    _, told = script.run()
    assert "goes on from its snapshot" in told
    assert list(script.store.iterdir()) == []
