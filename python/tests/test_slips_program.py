"""The six likeliest slips of `Program`: each is answered by an error that says the fix, and the fix works."""

import numpy as np
import pytest

import brambling as br

X = np.arange(10_000.0).reshape(5_000, 2)
y = np.arange(5_000.0)


def answer(kind, statement):
    with pytest.raises(kind) as caught:
        statement()
    assert isinstance(caught.value, br.Error)
    return str(caught.value)


def test_computing_with_a_dataset_as_if_it_were_an_array():
    p = br.Program("slip")
    x = p.dataset("x", value=20.0)
    told = answer(TypeError, lambda: x / 2)
    assert told.startswith("the values of `x` exist only while the program runs; use p.map(f, x)")

    half = p.map(lambda x: x / 2, x)
    p.keep(half)
    assert p.run()[half] == 10.0


def test_python_s_own_while_over_a_value_that_is_not_known_yet():
    p = br.Program("slip")
    x = p.dataset("x", value=100)

    def slip():
        while x > 10:
            p.update(x, lambda x: x // 2)

    assert "use p.map(f, x)" in answer(TypeError, slip)

    def slip_again():
        while x:
            p.update(x, lambda x: x // 2)

    assert "with p.loop(while_=f, on=x):" in answer(TypeError, slip_again)

    with p.loop(while_=lambda x: x > 10, on=x):
        p.update(x, lambda x: x // 2)
    assert p.run()[x] == 6


def test_asking_for_what_was_not_kept():
    p = br.Program("slip")
    sums = p.reduce("sum", p.map(np.sum, p.load(y)))
    told = answer(KeyError, lambda: p.run()[sums])
    assert told == f"`{sums.name}` was not kept: it was freed after its last use; call p.keep(dataset) before p.run() (kept: nothing)"

    p.keep(sums)
    assert p.run()[sums] == y.sum()


def test_one_value_beside_many_partitions_without_a_broadcast():
    p = br.Program("slip")
    rows, weights = p.load(X, partitions=2, name="rows"), p.dataset("weights", value=np.ones(2))
    told = answer(ValueError, lambda: p.map(np.matmul, rows, weights))
    assert "`rows` (2 partitions) and `weights` (1 partition)" in told
    assert "or move one with broadcast, shuffle or reduce first" in told

    margins = p.map(np.matmul, rows, p.broadcast(weights, like=rows))
    p.keep(margins)
    assert np.array_equal(np.concatenate(p.run()[margins]), X.sum(axis=1))


def test_a_function_that_takes_the_arrays_of_one_load_one_by_one():
    def sums(rows, labels):
        return rows.sum() + labels.sum()

    p = br.Program("slip")
    p.map(sums, p.load(X, y))
    told = answer(br.KernelError, p.run)
    assert "`sums` is called with 1 argument, one per dataset" in told
    assert "(arrays loaded together come as one tuple)" in told

    p = br.Program("no slip")
    total = p.reduce("sum", p.map(lambda block: sums(*block), p.load(X, y)))
    p.keep(total)
    assert p.run()[total] == X.sum() + y.sum()


def test_an_update_that_changes_its_argument_and_returns_nothing():
    def step(weights):
        weights += 1

    p = br.Program("slip")
    weights = p.dataset("weights", value=np.zeros(2))
    p.update(weights, step)
    told = answer(br.KernelError, p.run)
    assert "`step` returned None, but p.update stores what it returns; return the new value" in told

    def step_and_return(weights):
        weights += 1
        return weights

    p = br.Program("no slip")
    weights = p.dataset("weights", value=np.zeros(2))
    p.update(weights, step_and_return)
    assert p.run()[weights].tolist() == [1.0, 1.0]
