"""
How users write with the package. `mypy --strict` reads this; it is not run. A line that has to be refused carries a
`type: ignore` with its reason: where nothing is to be ignored, mypy says so.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

import brambling as br

Floats = npt.NDArray[np.float64]

X: Floats = np.zeros((8, 2))
y: Floats = np.zeros(8)


def gradient(rows: tuple[Floats, Floats], weights: Floats) -> Floats:
    return rows[0].T @ (rows[0] @ weights - rows[1])


def step(weights: Floats, total: Floats, ctx: br.Context) -> Floats:
    return weights - total / (1 + ctx.turn) + ctx.rng().normal()


def small(weights: Floats) -> bool:
    return bool(np.abs(weights).max() < 1e-3)


def a_program() -> Floats:
    p = br.Program("typed", seed=7)
    rows: br.Dataset = p.load(X, y, partitions=2, name="rows")
    weights = p.dataset("weights", value=np.zeros(2))
    with p.loop(3):
        local = p.broadcast(weights, like=rows)
        p.update(weights, step, p.reduce("sum", p.map(gradient, rows, local)))
    with p.loop(while_=small, on=weights):
        p.update(weights, np.negative)
    signal: br.Signal = p.signal(small, weights)
    with p.if_(signal):
        p.update(weights, np.abs)
    with p.else_():
        p.update(weights, np.square)
    sizes = p.map(len, rows, per="partition")
    p.keep(sizes, rows)
    result: br.Result = p.run(threads=2)
    kept: Mapping[str, Any] = result
    assert kept and p.picture() and result.tally["tasks"] > 0
    found: Floats = result[weights]
    return found


def arrow_in_and_out(frame: pl.DataFrame) -> pl.DataFrame:
    p = br.Program("arrow")
    p.keep(p.map(np.square, p.load(frame["a"], frame)))
    table: br.Table = p.run().table()
    ranks: np.ndarray = table["square"]
    assert len(table) == len(ranks)
    vertices: np.ndarray = br.graph.pagerank(ranks, ranks).largest("rank").vertex
    assert table.columns and len(vertices)
    return pl.DataFrame(table)


def an_estimator() -> Floats:
    model = br.ml.LogisticRegression(C=0.5, max_iter=10).fit(X, y)
    assert model.get_params()["C"] == 0.5
    frame = pl.DataFrame({"a": [1.0, 2.0], "b": [0, 1]})
    labels: np.ndarray = br.ml.LogisticRegression().fit(frame.drop("b"), frame["b"]).predict(frame.drop("b"))
    assert br.ml.KMeans(2).fit(frame).labels_.shape == labels.shape
    return model.predict_proba(X)


def errors(p: br.Program) -> str | None:
    try:
        p.run()
    except br.KernelError as error:
        return f"{error.stage} {error.partition} {error.turn}"
    except br.BuildTypeError as error:
        wrong: TypeError = error
        return str(wrong)
    except (br.BuildError, br.SettingsError) as error:
        refused: ValueError = error
        return str(refused)
    except br.MissingExtra as error:
        missing: ImportError = error
        return missing.msg
    except (br.NotKept, br.OutOfMemory, br.Stalled, br.Error):
        return br.__version__
    return None


def ideal() -> tuple[float, int | None, list[str]]:
    answer: br.IdealTime = br.model(
        nodes=8, input="1TB", disk_read="1GB/s", disk_write=1e9, network="10Gbit/s", external=True, took=600
    )
    moved = [operation.name for phase in answer.phases for operation in phase.operations]
    return answer.ideal_seconds + answer.over_provisioned.disk, answer.nodes_for, moved


def counted(line: str) -> list[tuple[str, int]]:
    return [(word, 1) for word in line.split()]


def reduced() -> tuple[int, list[str], float]:
    counts: br.Reduced = br.map_reduce(["a.txt"], "words", "sum", threads=2)
    written: br.Written = br.map_reduce("*.txt", counted, lambda _, values: sum(values), output="counts", backup=True)
    return counts["be"], [file.name for file in written.files], counts.report.actual_seconds


def slips(p: br.Program) -> None:
    p.run(2)  # type: ignore[call-arg]  # options are named
    p.loop("ten")  # type: ignore[arg-type]
    p.map(len, X)  # type: ignore[arg-type]  # an array is no dataset
    p.map(len, p.load(X), per="row")  # type: ignore[arg-type]
    br.model(8, "1TB")  # type: ignore[call-arg]  # options are named
    p.run().weights  # type: ignore[attr-defined]
