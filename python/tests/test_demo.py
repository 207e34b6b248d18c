"""The demo: what it prints, the pictures that it writes, and what it says where it cannot."""

import re
import struct
import subprocess
import sys

import numpy as np
import pytest

import brambling as br
from brambling.examples import _flights_data as data
from brambling.examples import flights

TABLE = np.array([[-5.0, 700.0, 9.0], [2.0, 750.0, 17.0], [0.0, 2400.0, 8.0], [3.0, 2300.0, 18.0], [140.0, 900.0, 16.0]] * 30)
NAMES = ["short, morning", "short, afternoon", "long, morning", "long, afternoon", "very late"]
FLOWN = np.array(["EWR", "JFK", "LGA", "EWR"] * 5), np.array(["ATL", "LAX", "ORD", "HNL"] * 5)


def demo(folder, *args):
    return subprocess.run(
        [sys.executable, "-m", "brambling", "run", "flights", *args],
        capture_output=True, text=True, cwd=folder, timeout=120,
    )


def pixels(path):
    """Width and height of a PNG file, from its header."""
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n" and head[12:16] == b"IHDR"
    return struct.unpack(">II", head[16:24])


def draw(folder):
    labels = np.arange(len(TABLE)) % len(NAMES)
    return flights.draw(folder, TABLE, labels, NAMES, FLOWN, flights.rank_airports(*FLOWN), data.read_airports())


def test_the_whole_demo(tmp_path):
    done = demo(tmp_path, "--pictures", "drawn/here")
    assert done.returncode == 0, done.stderr
    told = done.stdout
    assert "336,776 flights, 327,346 of them arrived" in told
    assert 0.88 < float(re.search(r"^accuracy +(\S+)$", told, re.MULTILINE)[1]) < 0.92
    for name in NAMES:
        assert re.search(rf"^{name}  +[\d,]+ +-?\d+ min +[\d,]+ miles +\d+:\d\d$", told, re.MULTILINE), told
    assert [line.split()[1] for line in re.findall(r"^ *\d+  [A-Z]{3}  .*$", told, re.MULTILINE)][:5] == [
        "EWR", "JFK", "LGA", "ATL", "ORD",
    ]
    speeds = re.findall(r"^iterations +(\d+) of (\S+) ms on \d+ threads \((\S+) s per iteration\)$", told, re.MULTILINE)
    assert len(speeds) == 3 and all(int(count) > 0 and float(seconds) > 0 for count, _, seconds in speeds)
    # It ends by naming the files, which are there.
    named = [line.split()[-1] for line in told.rstrip().split("\n")[-2:]]
    assert named == ["drawn/here/flights-groups.png", "drawn/here/flights-airports.png"]
    for name in named:
        width, height = pixels(tmp_path / name)
        assert width > 1_200 and height > 800 and (tmp_path / name).stat().st_size > 50_000


def test_pictures_say_what_they_show(tmp_path):
    from brambling.examples import _flights_pictures as pictures

    labels = np.arange(len(TABLE)) % len(NAMES)
    by_distance, by_delay = pictures.groups(TABLE, labels, NAMES).axes
    assert (by_distance.get_ylabel(), by_delay.get_ylabel()) == ("distance (miles)", "delay at arrival (minutes)")
    map_ = pictures.airports(flights.rank_airports(*FLOWN), FLOWN, data.read_airports()).axes[0]
    texts = [text.get_text() for text in map_.texts]
    assert any(text.startswith("Chicago ") for text in texts) and any("Not on this map: HNL." in text for text in texts)
    # A dot for each of the six airports on it, and the shares of the three in New York in one text.
    assert len(map_.collections) == 6 and any(text.count("%") == 3 for text in texts)


def test_albers_projection():
    from brambling.examples._flights_pictures import albers

    # Snyder's own example for the sphere (p. 291): 35° N, 75° W, parallels 29.5° and 45.5°, from 23° N, 96° W.
    x, y = albers(np.array([-75.0, -96.0, -96.0]), np.array([35.0, 23.0, 37.5]))
    assert (x[0], y[0] - y[1]) == pytest.approx((0.2952720, 0.2416774), abs=1e-7)
    # Ours begins at 37.5° N.
    assert (x[2], y[2]) == pytest.approx((0, 0), abs=1e-12)


def test_without_matplotlib(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "brambling.examples._flights_pictures", raising=False)
    monkeypatch.delattr(sys.modules["brambling.examples"], "_flights_pictures", raising=False)
    for name in [name for name in sys.modules if name.startswith("matplotlib.")]:
        monkeypatch.delitem(sys.modules, name)
    assert draw(tmp_path / "none") == []
    (line,) = capsys.readouterr().out.strip().split("\n")
    assert line.startswith("no pictures: ") and line.endswith("pip install matplotlib, or pip install 'brambling[demo]'")
    assert not (tmp_path / "none").exists()


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(SystemExit) as caught:
        draw(tmp_path / "taken")
    assert "error: the pictures cannot be written to" in caught.value.code
    assert "\n  fix: --pictures with a folder that you may write to" in caught.value.code


def test_ranks_are_those_of_the_flights_counted():
    origin, dest = np.array(["EWR", "EWR", "EWR", "JFK"]), np.array(["ATL", "ATL", "ORD", "ATL"])
    flown = flights.rank_airports(origin, dest)
    counted = br.graph.pagerank(["EWR", "EWR", "JFK"], ["ATL", "ORD", "ATL"], [2.0, 1.0, 1.0], directed=False)
    assert flown.vertex.tolist() == counted.vertex.tolist()
    np.testing.assert_allclose(flown["rank"], counted["rank"], rtol=1e-9)


def test_groups_are_named_by_their_means():
    labels = np.arange(len(TABLE)) % len(NAMES)
    assert flights.group_names(TABLE, labels) == NAMES


def test_the_columns_that_arrived():
    columns = {name: ["1", "2"] for name in data.USED} | {"arr_delay": ["NA", "3"], "sched_dep_time": ["515", "1630"],
                                                          "origin": ["EWR", "JFK"], "dest": ["IAH", "BOS"]}
    assert data.delay_distance_hour(columns).tolist() == [[3.0, 2.0, 16.5]]
    assert [held.tolist() for held in data.routes(columns)] == [["JFK"], ["BOS"]]
