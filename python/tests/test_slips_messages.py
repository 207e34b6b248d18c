"""
Slips of every statement, of results, of kernels and of settings: each message holds the name of the thing and a way out.

A slip is what somebody typed who meant something else: a name for a dataset, a value for a function, one dimension for two.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import brambling as br
import numpy as np
import pytest

X, Y = np.arange(60.0).reshape(30, 2), np.arange(30) % 2
USE_MAP = "exist only while the program runs; use p.map(f, "
MAKE_ONE = "which is not a dataset; make it one with p.dataset(name, value=...) or p.load(array)"
NOT_A_FUNCTION = "give a function itself, as in np.sum, not what a call of it has returned"
A_FUNCTION = "give numbers, arrays of them or tuples of such, or an associative function of two values instead of the name"


class Session:
    """A program with a dataset of one partition, one of four, and rows."""

    def __init__(self):
        self.p = br.Program("slips")
        self.x = self.p.dataset("x", value=1.0)
        self.y = self.p.dataset("y", value=1.0, partitions=4)
        self.rows = self.p.load(X, name="rows")
        self.words = self.p.dataset("words", value=["to", "be"])

    def holding(self, value, partitions=2):
        return self.p.dataset("held", value=value, partitions=partitions)

    def scattered(self, pieces, to=2):
        return self.p.gather(len, self.p.scatter(lambda x: pieces, self.x, to=to))

    def shuffled(self, arrays, key):
        return self.p.shuffle(self.p.load(*arrays, name="loaded"), key=key)

    def unwritten(self):
        with self.p.if_(self.p.signal(lambda x: x > 5, self.x)):
            return self.p.map(double, self.x)

    def other(self):
        return br.Program("other").dataset("z", value=1)

    def turning(self, test):
        with self.p.loop(while_=test, on=self.x):
            self.p.update(self.x, double)


def double(x):
    return 2 * x


def pairs(x):
    yield x


async def later(x):
    return x


# What is typed, the thing that the message names, and its way out.
BUILDING = {
    "a program without a text for a name": (lambda s: br.Program(5), "not 5", "give one, as in br.Program('training')"),
    "a seed of text": (lambda s: br.Program("p", seed="1"), "seed = '1'", "give an integer from 0 to"),
    "a seed that is a fraction": (lambda s: br.Program("p", seed=1.5), "seed = 1.5", "give an integer from 0 to"),
    "a seed below zero": (lambda s: br.Program("p", seed=-1), "seed = -1", "give an integer from 0 to"),
    "a seed that is a truth value": (lambda s: br.Program("p", seed=True), "seed = True", "give an integer from 0 to"),
    "no seed": (lambda s: br.Program("p", seed=None), "seed = None", "give an integer from 0 to"),
    # load
    "a load of nothing": (lambda s: s.p.load(), "p.load", "give it, as in p.load(X)"),
    "a dict of columns": (lambda s: s.p.load({"a": [1]}), "argument 1 is a dict", "as in p.load(columns['a'], ...)"),
    "a generator": (lambda s: s.p.load(i for i in "ab"), "argument 1 is a generator", "as in p.load(list(...))"),
    "a map": (lambda s: s.p.load(X, map(int, "12")), "argument 2 is a map", "as in p.load(list(...))"),
    "a set": (lambda s: s.p.load({1, 2}), "argument 1 is a set", "as in p.load(sorted(...))"),
    "a number to load": (lambda s: s.p.load(3), "argument 1 is a single value, 3", "p.dataset(name, value=...)"),
    "None to load": (lambda s: s.p.load(None), "argument 1 is a single value, None", "p.dataset(name, value=...)"),
    "a file's name": (lambda s: s.p.load("a.csv"), "the text 'a.csv'", "read a file first"),
    "a path": (lambda s: s.p.load(Path("a.csv")), "argument 1 is the text", "read a file first"),
    "a dataset to load": (lambda s: s.p.load(s.x), "`x`", USE_MAP),
    "two arrays in a tuple": (lambda s: s.p.load((X, Y)), "argument 1 is a tuple of 2 arrays", "as in p.load(X, y)"),
    "two arrays in a list": (lambda s: s.p.load([X, Y]), "argument 1 is a list of 2 arrays", "as in p.load(X, y)"),
    "rows of unequal length": (lambda s: s.p.load([[1, 2], [3]]), "argument 1", "give rows of equal length"),
    "columns of unequal length": (lambda s: s.p.load(X, Y[:3]), "argument 2 has 3", "have equally many"),
    "a masked array": (lambda s: s.p.load(np.ma.masked_array([1], [1])), "argument 1", "give its filled(value)"),
    "a name that is taken": (lambda s: s.p.load(X, name="x"), "`x`", "give this one another name"),
    "an empty name": (lambda s: s.p.load(X, name=""), "not ''", "give one, as in"),
    "a number for a name": (lambda s: s.p.load(X, name=3), "not 3", "give one, as in"),
    "no partitions": (lambda s: s.p.load(X, partitions=0), "`loaded`", "give it at least 1"),
    "a fraction of partitions": (lambda s: s.p.load(X, partitions=2.0), "partitions = 2.0", "give a positive integer"),
    "partitions as text": (lambda s: s.p.load(X, partitions="2"), "partitions = '2'", "give a positive integer"),
    "partitions below zero": (lambda s: s.p.load(X, partitions=-2), "partitions = -2", "give a number from 1 to 16777216"),
    "too many partitions": (lambda s: s.p.load(X, partitions=1 << 30), "`loaded`", "give a number from 1 to 16777216"),
    # dataset
    "the name of another": (lambda s: s.p.dataset("x", value=0), "`x`", "give this one another name"),
    "a value without a name": (lambda s: s.p.dataset(np.zeros(3)), "array([0., 0., 0.])", "p.dataset('weights', value=...)"),
    "a dataset as a value": (lambda s: s.p.dataset("z", value=s.x), "`x`", "p.map(f, x)"),
    "a list of partitions": (lambda s: s.p.dataset("z", partitions=[1]), "partitions = [1]", "give a positive integer"),
    "no partition": (lambda s: s.p.dataset("z", partitions=0), "`z`", "give it at least 1"),
    # keep
    "the name of what is kept": (lambda s: s.p.keep("x"), "str 'x'", "give the dataset `x` itself"),
    "a list to keep": (lambda s: s.p.keep([s.x, s.y]), "p.keep uses list", "give each dataset as an argument of its own"),
    "an array to keep": (lambda s: s.p.keep(X), "ndarray", MAKE_ONE),
    "a signal to keep": (lambda s: s.p.keep(s.p.signal(bool, s.x)), "<signal bool", "test it with p.if_(signal)"),
    "another program's": (lambda s: s.p.keep(s.other()), "`z` of program 'other'", "make one here"),
    # map
    "a map over nothing": (lambda s: s.p.map(abs), "`abs`", "p.map(f, dataset, ...)"),
    "the dataset before the function": (lambda s: s.p.map(s.x, abs), "p.map(f, dataset, ...)", "the function comes first"),
    "a function's name": (lambda s: s.p.map("abs", s.x), "'abs'", "give a function"),
    "a number for a function": (lambda s: s.p.map(7, s.x), "not 7", NOT_A_FUNCTION),
    "None for a function": (lambda s: s.p.map(None, s.x), "not None", NOT_A_FUNCTION),
    "a call instead of a function": (lambda s: s.p.map(np.sum(X), s.x), "np.float64(1770.0)", NOT_A_FUNCTION),
    "an array beside a dataset": (lambda s: s.p.map(np.add, s.x, X), "`add` uses ndarray", "bind it with functools.partial"),
    "a number beside a dataset": (lambda s: s.p.map(pow, s.x, 2), "`pow` uses int 2", "bind it with functools.partial"),
    "datasets in a list": (lambda s: s.p.map(abs, [s.x]), "`abs` uses list", "give each dataset as an argument of its own"),
    "a dataset's name": (lambda s: s.p.map(abs, "x"), "`abs` uses str 'x'", "give the dataset `x` itself"),
    "an unknown dataset's name": (lambda s: s.p.map(abs, "z"), "`abs` uses str 'z'", MAKE_ONE),
    "pieces that nobody has received": (lambda s: s.p.map(len, s.p.scatter(dict, s.x, to=1)), "<exchange dict", "p.gather(f, exchange)"),
    "a signal to map": (lambda s: s.p.map(len, s.p.signal(bool, s.x)), "<signal bool", "test it with p.if_(signal)"),
    "per rows": (lambda s: s.p.map(len, s.rows, per="rows"), "per = 'rows'", "give 'block' or 'partition'"),
    "one dataset twice": (lambda s: s.p.map(max, s.x, s.x), "names `x` twice", "name each dataset once"),
    "unequal partitions": (lambda s: s.p.map(max, s.x, s.y), "`x` (1 partition) and `y` (4 partitions)", "broadcast, shuffle or reduce"),
    "unequal blocks": (lambda s: s.p.map(max, s.rows, s.p.load(np.zeros(9000))), "`rows` (1 block)", "in one p.load(...)"),
    "a generator function": (lambda s: s.p.map(pairs, s.x), "`pairs`", "return the values, as one list or array"),
    "an async function": (lambda s: s.p.map(later, s.x), "`later`", "return the values"),
    # update
    "an update from its function": (lambda s: s.p.update(abs, s.x), "p.update(dataset, f, ...)", "the dataset comes first"),
    "an assignment": (lambda s: s.p.update(s.x, s.y), "p.update(dataset, f, ...)", "the dataset comes first"),
    "an update to a number": (lambda s: s.p.update(s.x, 5), "not 5", NOT_A_FUNCTION),
    "an update of a name": (lambda s: s.p.update("x", abs), "`abs` uses str 'x'", "give the dataset `x` itself"),
    "an update that reads itself": (lambda s: s.p.update(s.x, max, s.x), "both reads and writes `x`", "declare it once, with update"),
    "an update of another program's": (lambda s: s.p.update(s.other(), abs), "`z` of program 'other'", "make one here"),
    "an update beside unequal partitions": (lambda s: s.p.update(s.y, max, s.x), "stage `max` uses `y` (4", "broadcast, shuffle or reduce"),
    # reduce and broadcast
    "a mean": (lambda s: s.p.reduce("mean", s.y), "'mean'", "give 'sum', 'min', 'max' or an associative function"),
    "an average for all": (lambda s: s.p.all_reduce("avg", s.y), "'avg'", "give 'sum', 'min', 'max' or an associative function"),
    "a reduction from its dataset": (lambda s: s.p.reduce(s.y, "sum"), "p.reduce(op, dataset)", "the function comes first"),
    "no operation": (lambda s: s.p.reduce(None, s.y), "p.reduce: its operation is None", "give 'sum', 'min', 'max'"),
    "a reduction of an array": (lambda s: s.p.reduce("sum", X), "p.reduce uses ndarray", MAKE_ONE),
    "NumPy's sum": (lambda s: s.p.reduce(np.sum, s.y), "`sum` combines the items of one array", "give 'sum'"),
    "Python's sum": (lambda s: s.p.reduce(sum, s.y), "`sum` combines the items of one array", "give 'sum'"),
    "NumPy's max": (lambda s: s.p.reduce(np.max, s.y), "`max` combines the items of one array", "give 'max'"),
    "a product": (lambda s: s.p.reduce(np.prod, s.y), "`prod` combines the items of one array", "give np.multiply"),
    "any of many": (lambda s: s.p.reduce(any, s.y), "`any` combines the items of one array", "give np.logical_or"),
    "a reduction by a generator": (lambda s: s.p.reduce(pairs, s.y), "`pairs` is a generator", "return the values"),
    "a name for all_reduce's like": (lambda s: s.p.all_reduce("sum", s.y, like="y"), "str 'y'", "give the dataset `y` itself"),
    "a broadcast of many": (lambda s: s.p.broadcast(s.y, like=s.x), "`broadcast y`", "reduce it first"),
    "a broadcast of rows": (lambda s: s.p.broadcast(s.rows, like=s.x), "`rows`", "reduce it to one value first"),
    "a broadcast of a number": (lambda s: s.p.broadcast(3.0, like=s.x), "p.broadcast uses float 3.0", MAKE_ONE),
    "a broadcast to a number": (lambda s: s.p.broadcast(s.x, like=4), "p.broadcast uses int 4", MAKE_ONE),
    # shuffle and exchange
    "a shuffle by nothing": (lambda s: s.p.shuffle(s.rows, key=None), "key = None", "give a function of a row"),
    "a shuffle by a fraction": (lambda s: s.p.shuffle(s.rows, key=1.0), "key = 1.0", "give a function of a row"),
    "a shuffle by columns": (lambda s: s.p.shuffle(s.rows, key=[0, 1]), "key = [0, 1]", "give a function of a row"),
    "a shuffle by a dataset": (lambda s: s.p.shuffle(s.rows, key=s.x), "key = <dataset x", "give a function of a row"),
    "a shuffle to no partitions": (lambda s: s.p.shuffle(s.rows, key=0, partitions=0), "`rows by key`", "give it at least 1"),
    "a shuffle of an array": (lambda s: s.p.shuffle(X, key=0), "p.shuffle uses ndarray", MAKE_ONE),
    "one neighbour": (lambda s: s.p.exchange(s.y, 1), "neighbours = 1", "such as (-1, 1)"),
    "no neighbours": (lambda s: s.p.exchange(s.y, ()), "neighbours = ()", "such as (-1, 1)"),
    "half a neighbour": (lambda s: s.p.exchange(s.y, (0.5,)), "neighbours = (0.5,)", "such as (-1, 1)"),
    "a neighbour's name": (lambda s: s.p.exchange(s.y, "left"), "neighbours = 'left'", "such as (-1, 1)"),
    "a far neighbour": (lambda s: s.p.exchange(s.y, (2**70,)), "neighbours = (1180591620717411303424,)", "such as (-1, 1)"),
    "a value to send": (lambda s: s.p.exchange(s.y, (1,), send=5), "send = 5", "give a function of a value and an offset"),
    "a function that knows no offset": (lambda s: s.p.exchange(s.y, (1,), send=double), "send = `double`", "give a function of both"),
    "wrap as text": (lambda s: s.p.exchange(s.y, (1,), wrap="no"), "wrap = 'no'", "give True or False"),
    "neighbours of a name": (lambda s: s.p.exchange("y", (1,)), "p.exchange uses str 'y'", "give the dataset `y` itself"),
    # scatter and gather
    "a scatter from nowhere": (lambda s: s.p.scatter(dict, to=2), "`dict`", "p.scatter(f, dataset, ..., to=...)"),
    "a scatter to a text": (lambda s: s.p.scatter(dict, s.x, to="2"), "`dict`: to = '2'", "give a positive integer"),
    "a scatter to nobody": (lambda s: s.p.scatter(dict, s.x, to=0), "`dict` sends to zero partitions", "give it at least 1"),
    "a gather of a dataset": (lambda s: s.p.gather(len, s.x), "`len` gathers <dataset x", "give what p.scatter"),
    "a gather from its pieces": (lambda s: s.p.gather(s.p.scatter(dict, s.x, to=1), len), "p.gather(f, pieces, ...)", "the function comes first"),
    "a gather beside unequal partitions": (
        lambda s: s.p.gather(max, s.p.scatter(dict, s.x, to=2), s.y), "`y` (4 partitions)", "broadcast, shuffle or reduce"
    ),
    # blocks
    "a loop without an end": (lambda s: s.p.loop().__enter__(), "a loop is", "p.loop(turns) or p.loop(while_=f, on=dataset)"),
    "fewer than no turns": (lambda s: s.p.loop(-1).__enter__(), "p.loop(-1)", "give the number of turns"),
    "half a turn": (lambda s: s.p.loop(2.5).__enter__(), "p.loop(2.5)", "give the number of turns"),
    "turns as text": (lambda s: s.p.loop("3").__enter__(), "p.loop('3')", "give the number of turns"),
    "a dataset's turns": (lambda s: s.p.loop(s.x).__enter__(), "p.loop(<dataset x", "p.loop(while_=f, on=dataset)"),
    "a test in the turns' place": (lambda s: s.p.loop(bool).__enter__(), "p.loop(<class 'bool'>)", "p.loop(while_=f, on=dataset)"),
    "a test of nothing": (lambda s: s.p.loop(while_=bool).__enter__(), "a loop is", "p.loop(while_=f, on=dataset)"),
    "a dataset without a test": (lambda s: s.p.loop(on=s.x).__enter__(), "a loop is", "p.loop(while_=f, on=dataset)"),
    "turns and a test": (lambda s: s.p.loop(3, while_=bool, on=s.x).__enter__(), "a loop is", "p.loop(turns) or"),
    "a test of four": (lambda s: s.p.loop(while_=bool, on=s.y).__enter__(), "reads `y`, which has 4 partitions", "reduce `y` to one first"),
    "a test that is a value": (lambda s: s.p.loop(while_=True, on=s.x).__enter__(), "not True", "give a function"),
    "a test of a name": (lambda s: s.p.loop(while_=bool, on="x").__enter__(), "str 'x'", "give the dataset `x` itself"),
    "for over a loop": (lambda s: list(s.p.loop(3)), "p.loop is no iterator", "write `with p.loop(...):`"),
    "a branch on a dataset": (lambda s: s.p.if_(s.x).__enter__(), "<dataset x", "make one with p.signal(f, dataset)"),
    "a branch on a value": (lambda s: s.p.if_(True).__enter__(), "not True", "make one with p.signal(f, dataset)"),
    "a branch on a function": (lambda s: s.p.if_(bool).__enter__(), "<class 'bool'>", "make one with p.signal(f, dataset)"),
    "else without if": (lambda s: s.p.else_().__enter__(), "p.else_()", "directly after the block of a p.if_(signal)"),
    "a signal of four": (lambda s: s.p.signal(bool, s.y), "`y`, which has 4 partitions", "reduce `y` to one first"),
    "a signal from its dataset": (lambda s: s.p.signal(s.x, bool), "p.signal(f, dataset)", "the function comes first"),
    "a signal of a number": (lambda s: s.p.signal(bool, 5), "`bool` uses int 5", MAKE_ONE),
    "not of a signal": (lambda s: not s.p.signal(bool, s.x), "signal `bool`", "write `with p.if_(signal):`"),
    # datasets as values
    "a sum of two": (lambda s: s.x + 1, "`x`", USE_MAP),
    "a length": (lambda s: len(s.rows), "`rows`", USE_MAP),
    "the first row": (lambda s: s.rows[0], "`rows`", USE_MAP),
    "a loop over rows": (lambda s: list(s.rows), "`rows`", USE_MAP),
    "a truth value": (lambda s: bool(s.x), "`x`", "with p.if_(p.signal(f, x))"),
    "a float": (lambda s: float(s.x), "`x`", USE_MAP),
    "a complex number": (lambda s: complex(s.x), "`x`", USE_MAP),
    "NumPy's sum of a dataset": (lambda s: np.sum(s.rows), "`rows`", USE_MAP),
    "an assignment to an element": (lambda s: s.x.__setitem__(0, 1), "`x`", USE_MAP),
    "a format": (lambda s: f"{s.x:.2f}", "`x`", USE_MAP),
    "an index": (lambda s: [1, 2][s.x], "`x`", USE_MAP),
    "a quotient with its rest": (lambda s: divmod(s.x, 2), "`x`", USE_MAP),
    "a shift": (lambda s: s.x << 2, "`x`", USE_MAP),
    "the larger of two": (lambda s: max(s.x, s.y), "`y`", USE_MAP),
    "a matrix's product": (lambda s: X @ s.x, "`x`", USE_MAP),
    # kernels of the package
    "a gradient of X and y apart": (lambda s: br.kernels.logistic_gradient(X, Y), "as one pair, (X, y), not ndarray", "give (X, y), weights"),
    "a gradient of singles": (
        lambda s: br.kernels.logistic_gradient((X.astype("f4"), Y * 1.0), np.zeros(2)), "X as an array of float64", "numpy.asarray(X, float)"
    ),
    "a gradient of labels that are integers": (
        lambda s: br.kernels.logistic_gradient((X, Y), np.zeros(2)), "y as an array of float64 of 1 dimension, not int64", "numpy.asarray(y, float)"
    ),
}
RUNNING = {
    # arguments of kernels
    "too few arguments": (lambda s: s.p.map(lambda a, b: a, s.x), "missing a required argument: 'b'", "one per dataset"),
    "too many datasets": (lambda s: s.p.map(lambda: 0, s.x), "too many positional arguments", "one per dataset"),
    "arrays of a load one by one": (lambda s: s.p.map(lambda X, y: X, s.p.load(X, Y)), "'y'", "arrays loaded together come as one tuple"),
    "a context of another name": (lambda s: s.p.map(lambda x, context: x, s.x), "'context'", "one per dataset"),
    "an update without its argument": (lambda s: s.p.update(s.x, lambda: 1), "too many positional arguments", "one per dataset"),
    "a combination of one": (lambda s: s.p.reduce(double, s.y), "`double` is called with two values", "give a function of two values"),
    # what kernels return
    "an update without return": (lambda s: s.p.update(s.x, lambda x: None), "returned None, but p.update", "return the new value"),
    "a sort in place": (lambda s: s.p.update(s.words, list.sort), "`sort` returned None", "return the new value"),
    "a reduction without return": (lambda s: s.p.reduce(lambda a, b: None, s.y), "returned None, but p.reduce", "return the combined value"),
    "a test without return": (lambda s: s.turning(lambda x: None), "returned None", "return a boolean"),
    "a test that gives a text": (lambda s: s.turning(lambda x: "no"), "returned the text 'no'", "return a boolean"),
    "a test that gives an array": (lambda s: s.turning(lambda x: np.ones(2) > 0), "returned ndarray of several values", "any() or all()"),
    "a signal without return": (lambda s: s.p.signal(lambda x: None, s.x), "returned None", "return a boolean"),
    "a write to rows": (lambda s: s.p.map(np.ndarray.sort, s.rows), "here `rows`", "return a new array, or declare the write with p.update"),
    "a value that cannot be copied": (
        lambda s: s.p.update(s.holding(threading.Lock()), lambda lock: lock), "the value of `held` cannot be copied", "make it in a kernel, with p.map"
    ),
    # reductions
    "arrays of other shapes": (
        lambda s: s.p.reduce("sum", s.p.map(lambda y, ctx: np.zeros(ctx.partition), s.y)), "shapes (0,) and (1,)", "the same shape for every block"
    ),
    "rows instead of sums": (lambda s: s.p.reduce("sum", s.p.load(np.zeros(5000))), "shapes (4096,) and (904,)", "the same shape for every block"),
    "tuples of other lengths": (
        lambda s: s.p.reduce("sum", s.p.map(lambda y, ctx: (1,) * ctx.partition, s.y)), "tuples of 0 and 1 items", "equally many for every block"
    ),
    "numbers and tuples": (
        lambda s: s.p.reduce("sum", s.p.map(lambda y, ctx: (1,) if ctx.partition else 1, s.y)), "sum of int and tuple", "the same for every block"
    ),
    "a sum of texts": (lambda s: s.p.reduce("sum", s.holding("a")), "sum of str", A_FUNCTION),
    "a sum of lists": (lambda s: s.p.reduce("sum", s.words), "sum of list", A_FUNCTION),
    "a sum of dicts": (lambda s: s.p.reduce("sum", s.holding({})), "sum of dict", A_FUNCTION),
    "the largest of nothings": (lambda s: s.p.reduce("max", s.holding(None)), "max of NoneType", A_FUNCTION),
    "a sum of dates": (lambda s: s.p.reduce("sum", s.p.load(np.array(["2020"], "M8[D]"))), "datetime64[D]", A_FUNCTION),
    "the largest text": (lambda s: s.p.reduce("max", s.p.load(np.array(["a"]))), "<U1", A_FUNCTION),
    "a masked array's sum": (lambda s: s.p.reduce("sum", s.holding(np.ma.masked_array([1], [1]))), "a masked array", "give its filled(value)"),
    "a reduction over no rows": (
        lambda s: s.p.map(double, s.p.reduce("sum", s.p.map(np.sum, s.p.load(np.empty(0), name="visits")))), "`visits` has no rows", "load rows"
    ),
    # shuffles
    "a column beyond the last": (lambda s: s.p.shuffle(s.rows, key=2), "`rows` have no column 2", "give 0 to 1, or a function of a row"),
    "a column by a name": (lambda s: s.p.shuffle(s.rows, key="age"), "`rows` have no column 'age'", "give 0 to 1, or a function of a row"),
    "the column of a vector": (lambda s: s.shuffled([Y], 0), "`loaded` have no column 0", "give key=lambda row: row"),
    "an array beyond the last": (lambda s: s.shuffled([X, Y], 2), "`loaded` have no column 2", "give 0 to 1"),
    "an array by a name": (lambda s: s.shuffled([X, Y], "age"), "`loaded` have no column 'age'", "give 0 to 1"),
    "a table as a key": (lambda s: s.shuffled([X, Y], 0), "column 0 of `loaded` has 2 dimensions", "give a function of a row"),
    "a field's misspelt name": (lambda s: s.shuffled([np.zeros(3, [("age", int)])], "agee"), "`loaded` have no column 'agee'", "give 'age'"),
    "a field by its place": (lambda s: s.shuffled([np.zeros(3, [("age", int)])], 0), "`loaded` have no column 0", "give 'age'"),
    "an item beyond the last": (lambda s: s.p.shuffle(s.words, key=3), "row 0 of `words` is 'to' and has no item 3", "or a function of a row"),
    "an item that a row lacks": (
        lambda s: s.p.shuffle(s.holding([{"a": 1}, {"b": 2}], 1), key="a"), "row 1 of `held` is {'b': 2} and has no item 'a'", "that all rows have"
    ),
    "an item of a number": (lambda s: s.p.shuffle(s.holding([1, 2], 1), key=0), "row 0 of `held` is 1", "or a function of a row"),
    "a shuffle of a number": (lambda s: s.p.shuffle(s.x, key=0), "not float; let `x`", "as a list, tuple or array per partition"),
    "a shuffle of a text": (lambda s: s.p.shuffle(s.holding("ab", 1), key=0), "not str; let `held`", "as a list, tuple or array"),
    "a list as a key": (lambda s: s.p.shuffle(s.rows, key=list), "cannot be a key", "give numbers, strings, bytes, None, or tuples of these"),
    "a dict as a key": (lambda s: s.p.shuffle(s.words, key=lambda word: {}), "{} cannot be a key", "give numbers, strings, bytes"),
    # scatters
    "a list of pieces": (lambda s: s.scattered([1, 2]), "returned list", "a mapping from destination partition to piece"),
    "no pieces": (lambda s: s.scattered(None), "returned NoneType", "a mapping from destination partition to piece"),
    "a destination from the end": (lambda s: s.scattered({-1: 0}), "sends to partition -1", "are counted from 0 to 1"),
    "a destination beyond the last": (lambda s: s.scattered({2: 0}), "sends to partition 2", "are counted from 0 to 1"),
    "a destination of text": (lambda s: s.scattered({"0": 0}), "sends to partition '0'", "are counted from 0 to 1"),
    "half a destination": (lambda s: s.scattered({0.5: 0}), "sends to partition 0.5", "are counted from 0 to 1"),
    "a destination beyond one": (lambda s: s.scattered({1: 0}, to=1), "the 1 destination of this scatter", "are counted from 0 to 0"),
    "a scatter without its gather": (lambda s: s.p.scatter(dict, s.x, to=2), "exchange `dict`", "one scatter and then one gather"),
    # control
    "a loop without its with": (lambda s: s.p.loop(3), "a p.loop(...) without its block", "write `with p.loop(...):`"),
    "a value that nothing has written": (lambda s: s.p.map(abs, s.unwritten()), "`double` is read before", "write it in an earlier stage"),
    "an update of what nothing has written": (lambda s: s.p.update(s.unwritten(), abs), "`double` is updated before", "write it in an earlier stage"),
    "a program in a kernel": (lambda s: s.p.update(s.x, lambda x: Session().p.run()), "a kernel cannot run a program", "after the job has ended"),
}
ASKING = {
    "what was not kept": (lambda r, s: r[s.made], "`double` was not kept", "call p.keep(dataset) before p.run()"),
    "what was not kept, by its name": (lambda r, s: r["double"], "`double` was not kept", "call p.keep(dataset) before p.run()"),
    "an unknown name": (lambda r, s: r["w"], "no dataset 'w'", "kept: `x`, `y`"),
    "a place": (lambda r, s: r[0], "no dataset 0", "kept: `x`, `y`"),
    "several names": (lambda r, s: r[["x", "y"]], "['x', 'y'] is neither", "ask for one at a time"),
    "all": (lambda r, s: r[:], "slice(None, None, None)", "ask for one at a time"),
    "another program's": (lambda r, s: r[s.other()], "`z` is of program 'other'", "ask the result of that program's run"),
    "a table of unequal columns": (lambda r, s: r.table(), "x has 1, y has 4, words has 2", "take them from the result by their names"),
}
ATTRIBUTES = {
    "a dataset's shape": (lambda s: s.rows.shape, "no 'shape': the values of `rows`", USE_MAP),
    "a dataset's method": (lambda s: s.rows.sum(), "no 'sum': the values of `rows`", USE_MAP),
    "a result's attribute": (lambda s: s.p.run().x, "no attribute 'x'", "as in result['x']"),
    "a kernel's misspelt name": (lambda s: br.kernels.logistic_gradients, "'logistic_gradients'", "it has 'logistic_gradient' and 'prefetch'"),
}
SETTINGS = {
    "threads of text": ({"threads": "two"}, "threads = 'two'", "give an integer from 1 to 1024"),
    "a fraction of threads": ({"threads": 2.0}, "threads = 2.0", "give an integer from 1 to 1024"),
    "no threads": ({"threads": 0}, 'threads = "0"', "give a number from 1 to 1024"),
    "too many threads": ({"threads": 5000}, 'threads = "5000"', "give a number from 1 to 1024"),
    "a weight of text": ({"weight": "high"}, "weight = 'high'", "give an integer from 1 to 1000"),
    "no weight": ({"weight": 0}, 'weight = "0"', "give a number from 1 to 1000"),
    "BRAMBLING_THREADS": ("many", 'BRAMBLING_THREADS = "many"', "give a number"),
    "BRAMBLING_MEMORY": ("lots", 'BRAMBLING_MEMORY = "lots"', "such as 8GB"),
    "BRAMBLING_ISA": ("avx", 'BRAMBLING_ISA = "avx"', "give v2, v3 or v4"),
    "BRAMBLING_PARTITIONS": ("x", 'BRAMBLING_PARTITIONS = "x"', "give a number"),
    "BRAMBLING_WEIGHT": ("0", 'BRAMBLING_WEIGHT = "0"', "give a number from 1 to 1000"),
    "BRAMBLING_LOG": ("loud", 'BRAMBLING_LOG = "loud"', "give off, error, warning, info or debug"),
    "BRAMBLING_STALL_SECONDS": ("soon", 'BRAMBLING_STALL_SECONDS = "soon"', "give a number"),
    "BRAMBLING_CONTROLLER": ("nohost", "`nohost:7077`", "give HOST:PORT"),
}
EDGES = [0, 1, 2], [1, 2, 0]
MODELS = {
    "a table of records for L-BFGS": (
        lambda: br.ml.LogisticRegression().fit(np.zeros(2, [("a", float), ("b", float)]), [0, 1]), "'a', 'b'", "structured_to_unstructured(X)"
    ),
    "a table of records for k-means": (
        lambda: br.ml.KMeans(1).fit(np.zeros(2, [("a", float), ("b", float)])), "'a', 'b'", "structured_to_unstructured(X)"
    ),
    "three dimensions": (lambda: br.ml.KMeans(1).fit(np.zeros((2, 2, 2))), "X has 3 dimensions", "give rows and columns"),
    "a complex table": (lambda: br.ml.KMeans(1).fit(X * 1j), "complex128", "give X.real and X.imag as columns"),
    "no rows": (lambda: br.ml.KMeans(1).fit(np.empty((0, 2))), "X has no rows", "nothing to learn"),
    "no columns": (lambda: br.ml.KMeans(1).fit(np.empty((3, 0))), "X has no columns", "give at least one"),
    "columns of unequal length in a graph": (lambda: br.graph.pagerank([1, 2, 3], [2, 3]), "src has 3 ids and dst has 2", "give one of each"),
    "ids that are floats": (lambda: br.graph.pagerank(np.ones(2), np.ones(2)), "src holds float64", "astype(np.int64)"),
    "a table of ragged columns": (lambda: br.Table({"a": [1], "b": [1, 2]}), "a has 1, b has 2", "cut them to one length"),
    "a table of a list": (lambda: br.Table([1, 2]), "a list", "give a dict of arrays"),
    "a cluster's port alone": (lambda: br.connect(7000), "address = 7000", 'give "HOST:PORT"'),
}


def check(said, thing, way_out):
    assert thing in said, said
    assert way_out in said, said
    # One line that can be read.
    assert "\n" not in said and len(said) < 500, said


def told(statement, kind=br.Error):
    with pytest.raises(kind) as caught:
        statement()
    return str(caught.value)


@pytest.mark.parametrize("slip", BUILDING)
def test_while_a_program_is_built(slip):
    """It is refused there, and leaves the program as it was."""
    statement, thing, way_out = BUILDING[slip]
    session = Session()
    check(told(lambda: statement(session), br.BuildError), thing, way_out)
    assert Session().p.run()["x"] == 1.0


@pytest.mark.parametrize("slip", RUNNING)
def test_while_it_runs(slip):
    """The stage is named too, where it is one that failed."""
    build, thing, way_out = RUNNING[slip]
    session = Session()
    build(session)
    said = told(session.p.run)
    check(said, thing, way_out)
    assert "stage `" in said or "exchange `" in said or "without its block" in said, said


@pytest.mark.parametrize("slip", ASKING)
def test_when_a_result_is_asked(slip):
    ask, thing, way_out = ASKING[slip]
    session = Session()
    session.made = session.p.map(double, session.x)
    result = session.p.run()
    check(told(lambda: ask(result, session)), thing, way_out)


@pytest.mark.parametrize("slip", ATTRIBUTES)
def test_attributes_that_do_not_exist(slip):
    ask, thing, way_out = ATTRIBUTES[slip]
    check(told(lambda: ask(Session()), AttributeError), thing, way_out)


@pytest.mark.parametrize("slip", SETTINGS)
def test_settings(slip, monkeypatch):
    given, thing, way_out = SETTINGS[slip]
    session = Session()
    if isinstance(given, str):
        monkeypatch.setenv(slip, given)
        given = {}
    check(told(lambda: session.p.run(**given)), thing, way_out)


@pytest.mark.parametrize("slip", MODELS)
def test_models_graphs_and_tables(slip):
    statement, thing, way_out = MODELS[slip]
    check(told(statement), thing, way_out)


def test_there_are_two_hundred():
    """With those of the models and the likeliest of programs, which have tables of their own."""
    import test_slips
    import test_slips_program

    here = sum(map(len, (BUILDING, RUNNING, ASKING, ATTRIBUTES, SETTINGS, MODELS)))
    models = sum(map(len, test_slips.SLIPS.values()))
    programs = sum(name.startswith("test_") for name in dir(test_slips_program))
    assert here + models + programs >= 200, (here, models, programs)
    assert os.path.basename(__file__) == "test_slips_messages.py"
