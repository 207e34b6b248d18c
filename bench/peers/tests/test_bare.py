"""
The bare programs in C beside plain Python and GNU grep: what ours is held against has to be right.
"""

import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

PEERS = Path(__file__).resolve().parents[1]
WIDTH = 100
# The least that it takes, in which 3.5 million records are several parts.
SMALL_BUDGET = 480 << 20


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A program of bench/peers by its name."""
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler here")
    folder = tmp_path_factory.mktemp("compiled")

    def compiled(name):
        words = ("cc", "-O2", "-pthread", "-o", str(folder / name), str(PEERS / f"{name}.c"))
        subprocess.run(words, check=True, capture_output=True)
        return str(folder / name)

    return compiled


def records(count, keys):
    rng = np.random.default_rng(count)
    made = rng.integers(0, 256, (count, WIDTH), dtype=np.uint8)
    if keys == "equal":
        made[:, :10] = 7
    elif keys == "few":
        made[:, :10] = rng.integers(0, 2, (count, 10))
    elif keys == "skewed":
        made[:, 0] = np.minimum(rng.zipf(1.3, count), 255)
    elif keys == "sorted":
        made = in_order(made)
    return made


def in_order(made):
    """By the first ten bytes; equal keys keep their order."""
    prefix, rest = made[:, :8].copy().view(">u8").ravel(), made[:, 8:10].copy().view(">u2").ravel()
    return made[np.lexsort((rest, prefix))]


def sort(program, made, folder, *more):
    made.tofile(folder / "in")
    done = subprocess.run([program, folder / "in", folder / "out", *more], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), np.fromfile(folder / "out", np.uint8).reshape(-1, WIDTH)


@pytest.mark.parametrize("keys", ["even", "equal", "few", "skewed", "sorted"])
@pytest.mark.parametrize("count", [0, 1, 40_960, 40_961, 300_000])
def test_a_sort_in_memory_is_stable(compiled, tmp_path, count, keys):
    made = records(count, keys)
    told, found = sort(compiled("sort_bare"), made, tmp_path)
    assert (told["records"], told["parts"]) == (count, 1)
    assert np.array_equal(found, in_order(made))


def test_a_sort_in_parts_has_the_same_records_in_order(compiled, tmp_path):
    made = records(3_500_000, "even")
    told, found = sort(compiled("sort_bare"), made, tmp_path, str(SMALL_BUDGET), str(tmp_path))
    assert told["parts"] > 1
    assert np.array_equal(found, in_order(made))
    assert sorted(os.listdir(tmp_path)) == ["in", "out"]


def test_a_sort_of_what_are_no_whole_records(compiled, tmp_path):
    (tmp_path / "in").write_bytes(b"a" * 150)
    done = subprocess.run([compiled("sort_bare"), tmp_path / "in", tmp_path / "out"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "150 bytes are not whole records of 100" in done.stderr


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_grep_finds_what_gnu_grep_finds(compiled, tmp_path, end):
    draw = random.Random(3)
    lines = [
        b"".join(draw.choices([b"a", b"b", b"needle", b" ", b"xyz"], [40, 40, 0.02, 20, 10], k=draw.randint(0, 60)))
        for _ in range(400_000)
    ]
    # Over the end of a block.
    lines.insert(120_000, b"q" * 60_000 + b"needle")
    (tmp_path / "text").write_bytes(b"\n".join(lines) + end)
    for text in ("needle", "edle", "xyzneedle", "nowhere"):
        theirs = subprocess.run(
            ["grep", "-F", text, tmp_path / "text"], capture_output=True, env={**os.environ, "LC_ALL": "C"}
        )
        bare = subprocess.run([compiled("grep_bare"), text, tmp_path / "text"], capture_output=True)
        assert (bare.returncode, bare.stdout) == (theirs.returncode, theirs.stdout), text
