"""The examples of the docstrings."""

import doctest
import importlib

import pytest


PROGRAM = [f"brambling._program.{part}" for part in ("program", "data", "stages", "reductions", "exchanges", "control", "result")]


@pytest.mark.parametrize(
    "name", ["brambling", "brambling._ideal", "brambling._kernel", "brambling._prefetch", "brambling._progress", *PROGRAM, "brambling.graph", "brambling.kernels", "brambling.ml"]
)
def test_examples_of(name):
    module = importlib.import_module(name)
    done = doctest.testmod(module, raise_on_error=False)
    assert done.attempted > 0
    assert done.failed == 0
