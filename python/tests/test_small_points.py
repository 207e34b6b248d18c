"""Small points of programs: what a kernel's second generator gives, what an update may store, what a shuffle hands over, and who is at which offset."""

import numpy as np
import pytest

import brambling as br


def kept(p, *datasets, **options):
    p.keep(*datasets)
    result = p.run(**options)
    return [result[dataset] for dataset in datasets]


# ---- random numbers


def draws(asks, **options):
    """What kernels draw that ask for their generator so often, before each of their draws or once."""
    p = br.Program("draws", seed=5)
    x = p.dataset("x", value=(), partitions=2)

    def draw(x, ctx):
        rng = ctx.rng()
        drawn = [rng.random()]
        for _ in range(3):
            if asks:
                rng = ctx.rng()
            drawn.append(rng.random())
        return x + tuple(drawn)

    with p.loop(2):
        p.update(x, draw)
    blocks = p.map(lambda rows, ctx: [ctx.rng().random() for _ in range(2)], p.load(np.zeros(9_000)))
    return kept(p, x, blocks, **options)


def test_a_second_call_of_rng_goes_on_where_the_first_stopped():
    again, once = draws(True, threads=1), draws(False, threads=1)
    assert again == once == draws(True, threads=2)
    for numbers in again[0]:
        assert len(set(numbers)) == len(numbers) == 8
    flat = [number for pair in again[1] for number in pair]
    assert len(set(flat)) == len(flat) == 6


def test_the_first_numbers_of_a_kernel_are_as_ever():
    """By the seed, the instruction, the turn and the partition, as NumPy's Philox has them."""
    p = br.Program("as ever", seed=7)
    x = p.dataset("x", value=None, partitions=3)
    with p.loop(2):
        p.update(x, lambda _, ctx: float(ctx.rng().random()))
    (values,) = kept(p, x)
    for partition, value in enumerate(values):
        philox = np.random.Philox(key=np.array([7, (0 << 40) ^ 1], np.uint64), counter=np.array([0, 0, 0, partition], np.uint64))
        assert value == np.random.Generator(philox).random()


# ---- None


@pytest.mark.parametrize("turns", [1, 3])
def test_an_update_may_store_none_where_the_dataset_began_as_none(turns):
    p = br.Program("none")
    x = p.dataset("x", value=None, partitions=2)
    seen = p.dataset("seen", value=(), partitions=2)
    with p.loop(turns):
        p.update(seen, lambda seen, x: (*seen, x), x)
        p.update(x, lambda x, ctx: 7 if x is None else None)
    result = p.run()
    assert result["x"] == [7 if turns % 2 else None] * 2
    assert result["seen"] == [(None, 7, None)[:turns]] * 2


@pytest.mark.parametrize("value", [0, (), "", np.zeros(2)], ids=repr)
def test_elsewhere_none_is_a_forgotten_return(value):
    p = br.Program("forgotten")
    x = p.dataset("x", value=value)
    p.update(x, lambda x: None)
    with pytest.raises(br.KernelError, match=r"returned None, but p\.update stores what it returns; return the new value"):
        p.run()


# ---- neighbours


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("offsets", [(1,), (-1,), (-2, 0, 3), (5,)])
def test_an_offset_says_where_the_other_one_stands(offsets, wrap):
    """What is told on the page of programs, beside a sum written out: key `o` of partition i is of partition i + o, and was sent as `-o`."""
    count = 4
    p = br.Program("offsets")
    x = p.dataset("x", value=0, partitions=count)
    p.update(x, lambda _, ctx: ctx.partition)
    heard = p.exchange(x, neighbours=offsets, wrap=wrap, send=lambda x, offset: (x, offset))
    (got,) = kept(p, heard)
    for i, pieces in enumerate(got):
        expected = {o: ((i + o) % count, -o) for o in sorted(offsets) if wrap or 0 <= i + o < count}
        assert pieces == expected
