"""The bench in Python tells what the benches in Rust tell."""

import json
import subprocess
import sys

# Whatever a bench measures, its JSON says where and how.
COMMON = {"bench", "version", "cpu", "isa", "threads", "smoke", "rounds", "repeated", "unsettled", "limits"}


def told(name):
    done = subprocess.run(
        [sys.executable, "-m", "brambling", "bench", name, "--smoke", "--json", "--threads", "1"],
        capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_both_kinds_of_benches_have_the_same_keys():
    ours, theirs = told("python-kernel"), told("logistic")
    assert ours.keys() >= COMMON and theirs.keys() >= COMMON
    for key in ("version", "cpu", "isa", "threads", "smoke", "rounds"):
        assert ours[key] == theirs[key], key
    assert ours["limits"][0].keys() == theirs["limits"][0].keys()
