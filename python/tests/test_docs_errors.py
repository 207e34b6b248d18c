"""What the pages quote: the answers of docs/errors.md to its snippets, the picture and the sample of others."""

import itertools
import os
import re
import shlex
import subprocess
import sys
import threading
import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from signal import SIGINT

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "errors.md"
CAUSE = "\n\nThe above exception was the direct cause of the following exception:\n\n"
BLOCKS = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<text>.*?)\n```$", re.MULTILINE | re.DOTALL)
# More than anything runs here: only a mistake without an end meets it.
PATIENCE_S = 60


@dataclass
class Mistake:
    title: str
    line: int
    kind: str
    typed: str
    answer: str


def blocks(text):
    """Kind, text and first line of each block of code."""
    for found in BLOCKS.finditer(text):
        yield found["kind"], found["text"], text.count("\n", 0, found.start()) + 2


def mistakes():
    """What is typed, with the answer that follows it."""
    text = PAGE.read_text(encoding="utf-8")
    lines = text.split("\n")
    (begin, *typed) = blocks(text)
    assert begin[0] == "python", "the page opens with what every snippet begins with"
    found = []
    for (kind, snippet, line), (_, answer, _) in zip(typed[::2], typed[1::2], strict=True):
        title = next(above for above in reversed(lines[:line]) if above.startswith("#")).lstrip("# ")
        found.append(Mistake(title, line, kind, snippet, answer))
    return begin[1], found


BEGIN, MISTAKES = mistakes()


def pattern_of(answer):
    """`…` stands for numbers and places that differ from run to run."""
    return ".+?".join(map(re.escape, answer.split("…")))


def compare(mistake, told):
    place = f"docs/errors.md:{mistake.line}"
    assert re.fullmatch(pattern_of(mistake.answer), told, re.DOTALL), (
        f"{place}: {mistake.title}\n--- the page says\n{mistake.answer}\n--- the answer is\n{told}"
    )


def last_line_of(error):
    return "".join(traceback.format_exception_only(error)).rstrip("\n")


def told_by(snippet, line, with_cause):
    """What Python prints below the traceback of a snippet."""
    # Blank lines keep the page's line numbers in tracebacks.
    code = compile("\n" * (line - 1) + snippet, str(PAGE), "exec")
    names = {"__name__": "snippet"}
    exec(BEGIN, names)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            exec(code, names)
        except BaseException as error:
            told = last_line_of(error)
            return f"{last_line_of(error.__cause__)}{CAUSE}{told}" if with_cause else told
    return "\n".join(f"{PAGE}:{it.lineno}: {it.category.__name__}: {it.message}" for it in warned)


def interrupted(snippet, line, with_cause):
    """The same, with Ctrl-C once it runs."""
    ended = threading.Event()

    def press():
        time.sleep(0.3)
        if not ended.is_set():
            os.kill(os.getpid(), SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    try:
        return "^C\n" + told_by(snippet, line, with_cause)
    finally:
        ended.set()
        presser.join()


def told_by_shell(typed):
    """What a command prints about a mistake: each line typed in order, up to the last one."""
    *before, last = typed.split("\n")
    for line in before:
        if line.startswith("brambling "):
            command = [sys.executable, "-m", *shlex.split(line)]
            subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)
        else:
            subprocess.run(line, shell=True, check=True, timeout=PATIENCE_S)
    settings = dict(itertools.takewhile(lambda pair: len(pair) == 2, (word.split("=") for word in shlex.split(last))))
    program, *arguments = shlex.split(last)[len(settings) :]
    assert program == "brambling"
    done = subprocess.run(
        [sys.executable, "-m", "brambling", *arguments],
        capture_output=True, text=True, timeout=PATIENCE_S, env=os.environ | settings,
    )
    return f"{done.stderr.rstrip()}\n(exit code {done.returncode})"


def told_in_a_process_of_its_own(snippet):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"{BEGIN}\n{snippet}"],
        capture_output=True, text=True, timeout=PATIENCE_S,
    )
    return done.stderr.rstrip().split("\n")[-1]


@pytest.fixture
def newcomer(monkeypatch, tmp_path):
    """An empty folder, and an environment that is put back."""
    before = dict(os.environ)
    for name in before:
        if name.startswith("BRAMBLING_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.title)
def test_the_answer_is_the_one_on_the_page(mistake, newcomer):
    with_cause = CAUSE in mistake.answer
    if mistake.kind == "sh":
        told = told_by_shell(mistake.typed)
    elif "os.fork()" in mistake.typed:
        told = told_in_a_process_of_its_own(mistake.typed)
    elif mistake.answer.startswith("^C\n"):
        told = interrupted(mistake.typed, mistake.line, with_cause)
    else:
        told = told_by(mistake.typed, mistake.line, with_cause)
    compare(mistake, told)


def test_every_kind_of_block_is_known():
    kinds = [kind for kind, _, _ in blocks(PAGE.read_text(encoding="utf-8"))][1:]
    assert set(kinds[::2]) <= {"python notest", "sh"}
    assert set(kinds[1::2]) == {"text"}
    assert len(MISTAKES) > 40


@pytest.mark.parametrize("wrong", ["a word", "a number"])
def test_a_page_that_says_something_else_is_noticed(wrong):
    mistake = next(it for it in MISTAKES if it.title == "Different numbers of rows")
    compare(mistake, mistake.answer)
    told = mistake.answer.replace("rows", "lines") if wrong == "a word" else mistake.answer.replace("6", "7")
    with pytest.raises(AssertionError, match="the page says"):
        compare(mistake, told)


# ---- what Rust users are told


def test_the_texts_for_rust_are_those_of_its_tests():
    source = (REPOSITORY / "crates/engine/tests/mistakes.rs").read_text(encoding="utf-8")
    source = re.sub(r"\\\n\s*", "", source).replace('\\"', '"')
    table = PAGE.read_text(encoding="utf-8").partition("## In Rust")[2]
    texts = re.findall(r"^\| ``? ?(.+?) ?``? \|", table, re.MULTILINE)
    assert len(texts) > 30
    for text in texts:
        for fragment in text.split("…"):
            assert fragment.strip(" :;") in source, f"docs/errors.md: no test of Rust tells `{text}`: {fragment!r}"


def test_the_sample_of_the_readme_is_the_example():
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    (sample,) = (text for kind, text, _ in blocks(readme) if kind == "rust")
    example = (REPOSITORY / "examples/logistic_regression.rs").read_text(encoding="utf-8")
    for piece in sample.split("\n\n"):
        assert piece in example, f"README.md: this is not in examples/logistic_regression.rs:\n{piece}"


def test_the_picture_of_a_program_is_its_picture():
    text = (REPOSITORY / "docs/programs.md").read_text(encoding="utf-8")
    program, picture = [(kind, block) for kind, block, _ in blocks(text)][:2]
    assert (program[0], picture[0]) == ("python", "mermaid")
    names = {}
    exec(program[1], names)
    assert names["p"].picture().strip() == picture[1]
