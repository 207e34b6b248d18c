"""The ideal time of a job: what `br.model` and `brambling model` answer, alike, and what they refuse."""

import copy
import dataclasses
import json
import pickle
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import brambling as br

DOCS = Path(__file__).resolve().parents[2] / "docs"
TERASORT = {"nodes": 1460, "input": "1TB", "disk_read": "260MB/s", "disk_write": "260MB/s", "network": "110MB/s"}


def command(*arguments):
    done = subprocess.run([sys.executable, "-m", "brambling", "model", *arguments], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def options_of(arguments):
    for name, value in arguments.items():
        option = "--" + name.replace("_", "-")
        yield from (option,) if value is True else (option, str(value))


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"took": "62s"},
        {"external": True, "took": "1.5h"},
        {"backup": True, "replication": 3},
        {"external": True, "backup": True, "map_ratio": 0.5, "reduce_ratio": 0.25},
        {"map_ratio": 0},
    ],
)
def test_the_command_and_the_function_say_the_same(more):
    arguments = TERASORT | more
    answer = br.model(**arguments)
    options = [*options_of(arguments)]
    # As JSON has lists where Python has tuples.
    here = json.loads(json.dumps(dataclasses.asdict(answer)))
    assert here == json.loads(command(*options, "--json"))
    assert f"{answer}\n" == command(*options)


def test_numbers_are_bytes_and_seconds():
    numbers = {"input": 10**12, "disk_read": 260e6, "disk_write": np.float32(260e6), "network": np.int64(110_000_000)}
    assert br.model(nodes=np.int32(1460), took=62, **numbers) == br.model(**TERASORT, took="62s")


def test_an_answer_is_a_value():
    answer = br.model(**TERASORT)
    with pytest.raises(dataclasses.FrozenInstanceError):
        answer.ideal_seconds = 1.0
    for other in (pickle.loads(pickle.dumps(answer)), copy.deepcopy(answer)):
        assert other == answer and str(other) == str(answer)
    assert {answer: 1}[br.model(**TERASORT)] == 1
    assert "_text" not in repr(answer) and "ideal_seconds=8.8" in repr(answer)
    assert isinstance(answer.phases, tuple) and answer.nodes_for is None


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("nodes", 0, "nodes is 0; give a whole number of at least 1, such as 3"),
        ("nodes", -3, "nodes is -3; give a whole number"),
        ("nodes", True, "nodes is True; give a whole number"),
        ("nodes", 2**60, "nodes is 1152921504606846976; give a whole number"),
        ("input", "1", "input = '1': the unit is missing; a size is written as 1TB"),
        ("input", "-1TB", "input = '-1TB': it is negative; a size"),
        ("input", -1e12, "input is -1000000000000; it has to be above 0, such as 1TB"),
        ("input", float("nan"), "input is NaN; it has to be above 0"),
        ("input", 10**400, "input is beyond what a number can hold"),
        ("disk_read", "260", "disk_read = '260': the unit is missing; a rate is written as 260MB/s"),
        ("disk_write", "260XB/s", "disk_write = '260XB/s': `XB/s` is not one of the units"),
        ("network", 0, "network is 0; it has to be above 0, such as 110MB/s"),
        ("replication", 1461, "replication is 1461 on 1460 nodes; each replica"),
        ("map_ratio", -1, "map_ratio is -1; it has to be 0 or above"),
        ("reduce_ratio", float("inf"), "reduce_ratio is inf; it has to be 0 or above"),
        ("took", "62", "took = '62': the unit is missing; a time is written as 62s"),
        ("took", 0, "took is 0; it has to be above 0, such as 62s"),
    ],
)
def test_what_cannot_be_is_refused(name, value, says):
    with pytest.raises(br.BuildError) as refused:
        br.model(**TERASORT | {name: value})
    assert says in str(refused.value)
    assert not isinstance(refused.value, TypeError)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("nodes", 1.5, "nodes is 1.5; give a whole number, such as 3"),
        ("nodes", "3", "nodes is '3'; give a whole number"),
        ("input", None, "input is None; give text such as '1TB', or a number of bytes"),
        ("network", True, "network is True; give text such as '260MB/s', or a number of bytes per second"),
        ("took", [62], "took is [62]; give text such as '62s', or a number of seconds"),
        ("map_ratio", "1", "map_ratio is '1'; give a number of at least 0"),
    ],
)
def test_what_is_of_another_kind_is_refused(name, value, says):
    with pytest.raises(br.BuildTypeError) as refused:
        br.model(**TERASORT | {name: value})
    assert says in str(refused.value)


# ---- what docs/model.md shows


def test_the_page_shows_what_the_command_prints():
    page = (DOCS / "model.md").read_text(encoding="utf-8")
    typed, printed = re.search(r"^```sh\n(.*?)```\n```text\n(.*?)```$", page, re.MULTILINE | re.DOTALL).groups()
    program, name, *options = shlex.split(typed.replace("\\\n", ""))
    assert (program, name) == ("brambling", "model")
    assert command(*options) == printed


def test_the_pictures_are_those_of_the_model():
    one_disk = {"disk_read": "108MB/s", "disk_write": "97MB/s"}
    shares = br.model(**TERASORT).ideal_seconds / 62
    slow = br.model(nodes=25, input="100GB", network="11MB/s", **one_disk).ideal_seconds
    fast = br.model(nodes=25, input="100GB", network="110MB/s", **one_disk).ideal_seconds
    backup = br.model(nodes=25, input="100GB", network="110MB/s", backup=True, **one_disk).ideal_seconds
    for picture, texts in [
        ("model-shares.svg", [f"{100 * shares:.1f} %"]),
        ("model-hadoop.svg", [f"{fast:.1f} s", f"{backup:.1f} s with"]),
        ("model-networks.svg", [f"{fast:.1f} s", f"{slow:.1f} s"]),
    ]:
        drawn = (DOCS / "pictures" / picture).read_text(encoding="utf-8")
        assert all(f">{text}<" in drawn for text in texts), (picture, texts)
        # Both palettes are in it.
        assert "prefers-color-scheme: dark" in drawn and not re.search(r"(fill|stroke): ?#", drawn)
