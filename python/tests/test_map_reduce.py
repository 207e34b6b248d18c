"""
Map-reduce over files: what comes out is what Python's own Counter and dicts give.

The oracle reads whole files; it shares no code with the package. Says nothing about speed.
"""

import errno
import operator
import os
import pickle
import random
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import brambling as br
from brambling import _map_reduce_python, _map_reduce_rows

TEXTS = [
    b"to be or not\r\nto be\n\nthat is the question",
    b"",
    b"\n",
    b"nul\0nul a\tb\x0bc\x0cd\r\n\xff\xfe caf\xc3\xa9 \xff\n",
    b"x" * 40 + b" " + b"x" * 40 + b"\n",
]


@pytest.fixture
def files(tmp_path):
    paths = []
    for place, text in enumerate(TEXTS):
        paths.append(tmp_path / f"{place}.txt")
        paths[-1].write_bytes(text)
    return paths


@pytest.fixture
def fine(monkeypatch):
    """Splits of a few bytes, so that lines straddle them."""
    monkeypatch.setattr(_map_reduce_python, "_SPLIT_BYTES", 7)


@pytest.fixture
def tiny(monkeypatch):
    """Room for a few rows, so that most go to runs, and few runs are merged at once."""
    monkeypatch.setattr(_map_reduce_rows, "_SHARE", 1e-7)
    monkeypatch.setattr(_map_reduce_rows, "_SAMPLE", 2)
    monkeypatch.setattr(_map_reduce_rows, "_RUNS_MAX", 3)


def decoded(item: bytes) -> str:
    return item.decode("utf-8", "surrogateescape")


def in_order(counts):
    return dict(sorted(counts.items(), key=lambda pair: pair[0].encode("utf-8", "surrogateescape")))


def words() -> Counter[str]:
    return Counter(decoded(word) for text in TEXTS for word in text.split())


def lines() -> Counter[str]:
    every = (line for text in TEXTS for line in text.split(b"\n")[: None if not text.endswith(b"\n") and text else -1])
    return Counter(decoded(line.removesuffix(b"\r")) for line in every)


@pytest.mark.parametrize("threads", [1, 2])
def test_built_in_functions_count_as_counter_does(files, threads):
    for expected, map_ in ((words(), "words"), (lines(), "lines")):
        for reduce, wanted in (("sum", expected), ("count", expected), ("min", dict.fromkeys(expected, 1)), ("max", dict.fromkeys(expected, 1))):
            for partitions in (None, 3):
                found = br.map_reduce(files, map_, reduce, partitions=partitions, threads=threads)
                assert list(found.items()) == list(in_order(wanted).items())


def split_words(line):
    for word in line.encode("utf-8", "surrogateescape").split():
        yield decoded(word), 1


@pytest.mark.parametrize("partitions", [1, 4])
@pytest.mark.parametrize("backup", [False, True])
def test_functions_of_python_count_as_counter_does(files, fine, partitions, backup):
    expected = list(in_order(words()).items())
    for combine in (None, operator.add):
        for reduce in (lambda _, values: sum(values), "sum"):
            found = br.map_reduce(files, split_words, reduce, combine, partitions=partitions, backup=backup)
            assert list(found.items()) == expected
    assert list(br.map_reduce(files, split_words, "count", partitions=partitions).items()) == expected
    assert list(br.map_reduce(files, "words", lambda _, values: len(values)).items()) == expected
    assert list(br.map_reduce(files, "lines", lambda _, values: len(values)).items()) == list(in_order(lines()).items())


def test_values_come_in_the_order_of_the_text(tmp_path, fine):
    numbers = [random.Random(1).randrange(5) for _ in range(200)]
    path = tmp_path / "numbers.txt"
    path.write_text("".join(f"{number} {place}\n" for place, number in enumerate(numbers)))
    expected = defaultdict(list)
    for place, number in enumerate(numbers):
        expected[number].append(place)

    def place(line):
        number, place = line.split()
        return [(int(number), int(place))]

    found = br.map_reduce(path, place, lambda _, values: values)
    assert found == expected
    assert list(found) == sorted(expected)
    assert br.map_reduce(path, place, "max") == {number: max(places) for number, places in expected.items()}
    assert br.map_reduce(path, place, "min") == {number: min(places) for number, places in expected.items()}


@pytest.mark.parametrize("combine", [None, operator.add])
@pytest.mark.parametrize("partitions", [1, 3])
def test_pairs_that_have_no_room_give_the_same(tmp_path, fine, tiny, partitions, combine):
    numbers = [random.Random(2).randrange(40) for _ in range(400)]
    path = tmp_path / "numbers.txt"
    path.write_text("".join(f"{number} {place} {place + 1}\n" for place, number in enumerate(numbers)))
    expected = defaultdict(list)
    for place, number in enumerate(numbers):
        expected[f"{number}"] += [(place,), (place + 1,)]
    merged = []
    whole = _map_reduce_rows._merged

    def watched(sources):
        merged.append(len(sources))
        return whole(sources)

    def places(line):
        number, *places = line.split()
        return [(number, (int(place),)) for place in places]

    def listed(_, values):
        return [(place,) for value in values for place in value]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_map_reduce_rows, "_merged", watched)
        found = br.map_reduce(path, places, listed, combine, partitions=partitions)
    assert found == expected
    assert list(found) == sorted(expected)
    assert len(merged) > 20, "many runs, merged some at a time"
    assert max(merged) == 3
    output = tmp_path / "output"
    written = br.map_reduce(path, places, listed, combine, partitions=partitions, output=output)
    lines = sorted(line for file in written.files for line in file.read_text().splitlines())
    assert lines == sorted(f"{key}\t{values}" for key, values in expected.items())
    assert written.keys == len(expected)


def test_keys_and_values_that_cannot_be_spilled_are_told(tmp_path, fine, tiny):
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{number}\n" for number in range(30)))
    with pytest.raises(br.KernelError, match="a pair cannot be written to the disk.*give more memory"):
        br.map_reduce(path, lambda line: [(line, lambda: line)] * 9, lambda _, values: len(values))
    with pytest.raises(br.KernelError, match="keys of int and str have no order"):
        br.map_reduce(path, lambda line: [(line, 1), (int(line), 1)], lambda _, values: len(values))
    # Text and its bytes are two keys.
    found = br.map_reduce(path, lambda _: [("a", 1), (b"a", 1)], lambda _, values: len(values))
    assert found == {"a": 30, b"a": 30}


def test_a_disk_that_is_full_is_told(tmp_path, tiny, monkeypatch):
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{number}\n" for number in range(30)))

    def full(*_):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(br.KernelError, match="No space left on device, while pairs that memory has no room for were written: '/"):
        br.map_reduce(path, "words", lambda _, values: len(values), output=tmp_path / "output")
    assert not (tmp_path / "output").exists()
    assert sorted(it.name for it in tmp_path.iterdir()) == ["lines.txt"]


GREEDY = """
import re, sys
from pathlib import Path
import brambling as br

def bytes_of(name):
    return int(re.search(name + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) << 10

def words(line):
    return [(word, word[:3]) for word in line.split()]

def counted(_, values):
    return len(values)

few, path, output = sys.argv[1:]
# What it has anyhow is there then.
br.map_reduce(few, words, counted)
before = bytes_of("VmRSS")
# The peak begins anew at what is there.
Path("/proc/self/clear_refs").write_text("5")
br.map_reduce(path, words, counted, output=output)
print(bytes_of("VmHWM") - before)
"""


def test_memory_stays_within_the_budget(tmp_path):
    path = tmp_path / "words.txt"
    keys = 300_000
    with path.open("w") as file:
        for number in range(keys):
            print(f"k{number * 0x9E3779B97F4A7C15 % (1 << 64):016x} {number % 1000:016x}", file=file)
    budget = 64 << 20
    few = tmp_path / "few.txt"
    few.write_text("few words")
    command = [sys.executable, "-c", GREEDY, few, path, tmp_path / "output"]
    environment = {**os.environ, "BRAMBLING_MEMORY": f"{budget}", "TMPDIR": str(tmp_path)}
    taken = int(subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=120).stdout)
    assert taken < budget * 1.1
    counts = Counter()
    for part in (tmp_path / "output").iterdir():
        for line in part.read_text().splitlines():
            counts[line.split("\t")[1]] += 1
    assert counts == {"1": keys, "300": 1000}


def test_patterns_and_lists_name_files(tmp_path, files):
    expected = words()
    assert br.map_reduce(str(tmp_path / "*.txt"), "words", "sum") == expected
    assert br.map_reduce([files[0], str(files[0])], "words", "sum")["be"] == 4
    assert br.map_reduce(str(files[0]), "words", "sum")["be"] == 2
    odd = tmp_path / "[odd].txt"
    odd.write_text("odd")
    assert br.map_reduce(str(odd), "words", "sum") == {"odd": 1}


def test_parts_are_the_same_by_either_way(tmp_path, files):
    native, python = tmp_path / "native", tmp_path / "python"
    found = br.map_reduce(files, "words", "sum", output=native, partitions=3)
    other = br.map_reduce(files, split_words, "sum", output=str(python), partitions=3)
    assert (found.keys, len(found.files)) == (other.keys, len(other.files)) == (len(words()), 3)
    for one, two in zip(found.files, other.files, strict=True):
        assert (one.parent, two.parent, one.name) == (native, python, two.name)
        assert one.read_bytes() == two.read_bytes()
        assert one.read_bytes().splitlines() == sorted(one.read_bytes().splitlines())
    for again in ("words", split_words):
        with pytest.raises(OSError, match="delete it, or name another one"):
            br.map_reduce(files, again, "sum", output=native)
    assert sorted(path.name for path in tmp_path.iterdir()) == [*(f"{it}.txt" for it in range(5)), "native", "python"]


def test_a_report_comes_with_it(files):
    for map_ in ("words", split_words):
        report = br.map_reduce(files, map_, "sum").report
        assert report.actual_seconds > 0
        stages = str(report.to_dict())
        assert "map" in stages and "reduce" in stages


def test_an_exception_names_the_function_and_the_line(tmp_path, fine):
    path = tmp_path / "numbers.txt"
    path.write_text("".join(f"number {it}\n" for it in range(20)) + "none\n")

    def number(line):
        return [(line.split()[1], 1)]

    with pytest.raises(br.KernelError, match=r"map `number` failed on line 21 of .*numbers.txt, 'none': IndexError") as caught:
        br.map_reduce(path, number, "sum")
    assert isinstance(caught.value.__cause__, IndexError)
    assert caught.value.stage == "map"
    with pytest.raises(br.KernelError, match=r"map `nothing` failed on line \d+ of .*: TypeError: it returned None; return its pairs"):
        br.map_reduce(path, nothing, "sum")
    with pytest.raises(br.KernelError, match=r"TypeError: it gave .(number|none)., which is no pair; give \(key, value\)"):
        br.map_reduce(path, str.split, "sum")

    def refuse(_, values):
        raise ValueError("as it was told")

    with pytest.raises(br.KernelError, match=r"reduce `refuse` failed on key 'none' with 1 of its values: ValueError: as it was told"):
        br.map_reduce(write(tmp_path, "none\n"), "lines", refuse)
    with pytest.raises(br.KernelError, match=r"combine `refuse` failed on line 2 of .*: ValueError: as it was told"):
        br.map_reduce(write(tmp_path, "a\na\n"), "lines", lambda _, values: values, refuse)
    with pytest.raises(br.KernelError, match="keys of int and str have no order"):
        br.map_reduce(write(tmp_path, "a\n"), lambda _: [("a", 1), (2, 1)], "sum", partitions=1)


def nothing(_line):
    pass


def write(directory: Path, text: str) -> Path:
    path = directory / "written.txt"
    path.write_text(text)
    return path


def test_a_file_that_changes_is_told(tmp_path):
    path = write(tmp_path, "a\nb\n")

    def change(line):
        return [(line, 1)]

    job = _map_reduce_python.Job([str(path)], change, "sum", None, None, False, False)
    path.write_text("a\nb\nc\n")
    with pytest.raises(br.KernelError, match="has changed since the job began"):
        job.run(1)


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        (("missing.txt", "words", "sum"), FileNotFoundError, "missing.txt"),
        (("missing*.txt", "words", "sum"), br.BuildError, "no file matches 'missing\\*.txt'"),
        (([], "words", "sum"), br.BuildError, "names no file; give at least one"),
        ((3, "words", "sum"), br.BuildTypeError, "files = 3 is not usable"),
        (([3], "words", "sum"), br.BuildTypeError, "files has 3, which is no path"),
        (("a.txt", "word", "sum"), br.BuildError, "no built-in map 'word'; give words or lines, or a function"),
        (("a.txt", "words", "mean"), br.BuildError, "no built-in reduce 'mean'; give sum, count, min or max, or a function"),
        (("a.txt", 3, "sum"), br.BuildTypeError, "map = 3 is not usable"),
        (("a.txt", "words", "sum", 3), br.BuildTypeError, "combine = 3 is not usable"),
        (("a.txt", "words", "count", operator.add), br.BuildError, "leave combine out"),
    ],
)
def test_what_cannot_be_used_is_told(tmp_path, monkeypatch, arguments, error, told):
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("a\n")
    with pytest.raises(error, match=told):
        br.map_reduce(*arguments)


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"partitions": 0}, br.BuildError, "partitions = 0 is not usable; give 1 to 4,096"),
        ({"partitions": 5000}, br.BuildError, "partitions = 5000 is not usable"),
        ({"partitions": 1.5}, br.BuildTypeError, "partitions = 1.5 is not usable; give an integer"),
        ({"replication": 2, "output": "counts"}, br.BuildError, "replication = 2 (needs 2 workers, and there is 1|is not usable with functions of Python)"),
        ({"replication": 0}, br.BuildError, "replication = 0 is not usable; give at least 1"),
    ],
)
@pytest.mark.parametrize("map_", ["words", split_words])
def test_options_that_cannot_be_used_are_told(tmp_path, map_, options, error, told):
    with pytest.raises(error, match=told):
        br.map_reduce(write(tmp_path, "a\n"), map_, "sum", **options)


def test_a_missing_file_is_told_by_either_way(tmp_path):
    for map_ in ("words", split_words):
        with pytest.raises(OSError, match="missing.txt"):
            br.map_reduce(tmp_path / "missing.txt", map_, "sum")
        with pytest.raises(OSError, match="irectory"):
            br.map_reduce(tmp_path, map_, "sum")
        pipe = tmp_path / f"{len(str(map_))}.pipe"
        os.mkfifo(pipe)
        with pytest.raises(OSError, match="not a plain file but a pipe"):
            br.map_reduce(pipe, map_, "sum")


def test_copies_lie_with_other_workers(shared, tmp_path):
    path = write(tmp_path, "to be or\nnot to be\n" * 100)
    options = {"map": "words", "reduce": "sum", "partitions": 6}
    br.map_reduce(path, **options, output=tmp_path / "here")
    with br.connect(shared):
        written = br.map_reduce(path, **options, output=tmp_path / "there", replication=2)
        for more, told in [
            ({"output": tmp_path / "more", "replication": 3}, "map_reduce: replication = 3 needs 3 workers, and there are 2: start more"),
            ({"replication": 2}, "replication = 2 is not usable without output"),
            ({"output": tmp_path / "more", "replication": 2, "partitions": 3}, "partitions = 3 is not usable with replication: .* multiple of 2"),
        ]:
            with pytest.raises(br.BuildError, match=told):
                br.map_reduce(path, **{**options, **more})
    assert written.keys == 4
    assert [file.name for file in written.files] == [f"part-{number:05}" for number in range(6)]
    for file in written.files:
        expected = (tmp_path / "here" / file.name).read_bytes()
        assert file.read_bytes() == expected
        assert (tmp_path / "there" / "copies-1" / file.name).read_bytes() == expected
    assert not (tmp_path / "more").exists()


def test_functions_of_python_run_on_workers(shared, tmp_path, fine):
    path = write(tmp_path, "to be or\nnot to be\n" * 20)

    def lengths(line):
        return [(len(word), word) for word in line.split()]

    def joined(_, values):
        return " ".join(values)

    here = br.map_reduce(path, lengths, joined, partitions=3)
    with br.connect(shared):
        assert list(br.map_reduce(path, lengths, joined, partitions=3).items()) == list(here.items())
        written = br.map_reduce(path, lengths, joined, partitions=3, output=tmp_path / "output")
    lines = [line.split("\t") for file in written.files for line in file.read_text().splitlines()]
    assert {int(key): value for key, value in lines} == here


def test_what_is_spilled_here_is_whole_elsewhere():
    file = _map_reduce_rows.RunFile()
    rows = [(f"key {number}", [number, number + 1]) for number in range(9)]
    runs = [file.append(_map_reduce_rows.pickled(rows[:4])), file.append(_map_reduce_rows.pickled(rows[4:7]))]
    moved = pickle.loads(pickle.dumps(_map_reduce_rows.Rows(runs, rows[7:])))
    assert (moved.runs, moved.rest) == ([], rows)
    lines = [b"%d\n" % number for number in range(300_000)]
    part = _map_reduce_rows.Part.of(iter(lines), lambda: file)
    moved = pickle.loads(pickle.dumps(part))
    assert moved.keys == part.keys == len(lines)
    assert b"".join(moved.blocks()) == b"".join(part.blocks()) == b"".join(lines)
    assert sys.getsizeof(part, 0) < 1000 < sys.getsizeof(moved, 0)
