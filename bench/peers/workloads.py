"""What is compared, with whom, at which sizes, and how near results have to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

SIZES = ("small", "medium", "large")


class Measure(StrEnum):
    """How the distance of two arrays is taken."""

    LARGEST = "largest difference"
    SUM = "sum of differences"
    RELATIVE = "largest difference ÷ largest value"


@dataclass(frozen=True)
class Tolerance:
    """The most by which a peer's result may differ from ours."""

    measure: Measure
    most: float


@dataclass(frozen=True)
class Entry:
    """A system in a workload."""

    name: str
    # module:class
    of: str
    # It is timed for so many iterations, few and more; the difference counts.
    iterations: tuple[int, int]
    # Where that would take too long or be too short, by size.
    iterations_at: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    # Sizes at which it is left out, with the reason.
    absurd: Mapping[str, str] = field(default_factory=dict)
    # Where it computes less exactly than ours.
    allowed: Mapping[str, Tolerance] = field(default_factory=dict)

    def counts(self, size: str) -> tuple[int, int]:
        return self.iterations_at.get(size, self.iterations)


@dataclass(frozen=True)
class Workload:
    """One thing that all systems do."""

    name: str
    what: str
    # A kind of `data`, and its shape by size.
    data: str
    shapes: Mapping[str, Mapping[str, int]]
    # Iterations after which results are compared.
    check: int
    allowed: Mapping[str, Tolerance]
    ours: Entry
    peers: tuple[Entry, ...]


_ROWS = {
    "small": {"rows": 20_000, "columns": 20},
    "medium": {"rows": 1_000_000, "columns": 20},
    "large": {"rows": 10_000_000, "columns": 20},
}
_PER_ROW = "a Python object for each of 10 million rows: minutes an iteration"

LOGISTIC_LBFGS = Workload(
    name="logistic-lbfgs",
    what="logistic regression by L-BFGS, an iteration: one pass over the rows, seldom two",
    data="labelled-rows",
    shapes=_ROWS,
    # To convergence, at tol = 1e-8.
    check=0,
    allowed={"coefficients": Tolerance(Measure.LARGEST, 1e-4)},
    ours=Entry("brambling", "peers.systems.brambling:LogisticLbfgs", (1, 11)),
    peers=(
        Entry("scikit-learn", "peers.systems.scikit_learn:LogisticLbfgs", (1, 11)),
        Entry("SciPy", "peers.systems.numpy_scipy:LogisticLbfgs", (1, 11)),
    ),
)

LOGISTIC_GRADIENT = Workload(
    name="logistic-gradient",
    what="logistic regression by gradient descent, an iteration: one pass over the rows",
    data="labelled-rows",
    shapes=_ROWS,
    check=3,
    allowed={"weights": Tolerance(Measure.LARGEST, 1e-9)},
    ours=Entry("brambling", "peers.systems.brambling:GradientDescent", (1, 41)),
    peers=(
        Entry("NumPy", "peers.systems.numpy_scipy:GradientDescent", (0, 5)),
        Entry("PySpark, flat blocks", "peers.systems.spark:GradientDescentBlocks", (0, 3)),
        Entry("PySpark, tutorial", "peers.systems.spark:GradientDescentTutorial", (0, 1), absurd={"large": _PER_ROW}),
    ),
)

K_MEANS = Workload(
    name="kmeans",
    what="k-means, an iteration of Lloyd's from given centres",
    data="rows-in-a-cube",
    shapes={size: {**shape, "centres": 10} for size, shape in _ROWS.items()},
    check=3,
    allowed={
        "centres": Tolerance(Measure.LARGEST, 1e-9),
        "inertia": Tolerance(Measure.RELATIVE, 1e-9),
    },
    ours=Entry("brambling", "peers.systems.brambling:KMeans", (1, 41)),
    peers=(
        Entry("scikit-learn", "peers.systems.scikit_learn:KMeans", (1, 11)),
        Entry("PySpark, flat blocks", "peers.systems.spark:KMeansBlocks", (0, 3)),
        Entry("PySpark, MLlib", "peers.systems.spark:KMeansMLlib", (1, 4)),
    ),
)

PAGERANK = Workload(
    name="pagerank",
    what="PageRank on a Kronecker graph, an iteration over its edges in both directions",
    data="kronecker",
    shapes={
        "small": {"scale": 12, "edge_factor": 16},
        "medium": {"scale": 18, "edge_factor": 16},
        "large": {"scale": 21, "edge_factor": 16},
    },
    check=20,
    allowed={"ranks": Tolerance(Measure.SUM, 1e-9)},
    # Relabelling and cutting the edges takes as long as a hundred iterations, and its spread is in the difference.
    ours=Entry("brambling", "peers.systems.brambling:PageRank", (1, 201), iterations_at={"large": (1, 41)}),
    peers=(
        Entry("NetworKit", "peers.systems.networkit:PageRank", (1, 21)),
        Entry("SciPy", "peers.systems.numpy_scipy:PageRank", (0, 10)),
        Entry(
            "SciPy, float32",
            "peers.systems.numpy_scipy:PageRankSingle",
            (0, 10),
            allowed={"ranks": Tolerance(Measure.SUM, 1e-4)},
        ),
        Entry(
            "networkx",
            "peers.systems.networkx:PageRank",
            (1, 101),
            absurd=dict.fromkeys(("medium", "large"), "dictionaries of many millions of edges: gigabytes, and minutes to make"),
        ),
        Entry(
            "PySpark, tutorial",
            "peers.systems.spark:PageRankTutorial",
            (1, 4),
            absurd=dict.fromkeys(("medium", "large"), "a Python object for each edge, many millions in each iteration"),
        ),
    ),
)

GROUP_SUM = Workload(
    name="group-sum",
    what="the sums of one column by the keys in another; an iteration gives all of them once",
    data="keyed-values",
    shapes={
        "small": {"rows": 100_000, "keys": 100},
        "medium": {"rows": 5_000_000, "keys": 1_000},
        "large": {"rows": 50_000_000, "keys": 1_000},
    },
    check=1,
    allowed={
        "keys": Tolerance(Measure.LARGEST, 0),
        "sums": Tolerance(Measure.RELATIVE, 1e-9),
    },
    ours=Entry("brambling", "peers.systems.brambling:GroupSum", (1, 4)),
    peers=(
        Entry("brambling, dense keys", "peers.systems.brambling:GroupSumDense", (1, 51), iterations_at={"small": (1, 1001)}),
        Entry("Polars", "peers.systems.polars:GroupSum", (0, 5)),
        Entry("NumPy, dense keys", "peers.systems.numpy_scipy:GroupSum", (0, 5)),
        Entry("PySpark, DataFrame", "peers.systems.spark:GroupSumTable", (0, 3)),
        Entry(
            "PySpark, tutorial",
            "peers.systems.spark:GroupSumTutorial",
            (0, 1),
            absurd=dict.fromkeys(("medium", "large"), "a Python object for each of many millions of rows"),
        ),
    ),
)

_EXACT = Tolerance(Measure.LARGEST, 0)

SORT = Workload(
    name="sort",
    what="a file of lines of 100 bytes sorted into another by their bytes: cold, and on the disk at the end; an iteration is the whole",
    data="lines-to-sort",
    shapes={"small": {"rows": 20_000}, "medium": {"rows": 10_000_000}, "large": {"rows": 30_000_000}},
    check=1,
    allowed={"digest": _EXACT, "bytes": _EXACT},
    ours=Entry("brambling", "peers.systems.brambling_files:Sort", (0, 1)),
    peers=(
        Entry("GNU sort", "peers.systems.programs:GnuSort", (0, 1)),
        Entry("DuckDB", "peers.systems.duckdb:Sort", (0, 1)),
        Entry("Polars", "peers.systems.polars_files:Sort", (0, 1)),
        Entry("PySpark, DataFrame", "peers.systems.spark_files:Sort", (0, 1)),
    ),
)

_TEXT = {"small": {"bytes": 1_000_000}, "medium": {"bytes": 1_000_000_000}, "large": {"bytes": 4_000_000_000}}

GREP = Workload(
    name="grep",
    what="the lines of a file in memory that hold a rare word; an iteration is the whole",
    data="words",
    shapes=_TEXT,
    check=1,
    allowed={"digest": _EXACT, "bytes": _EXACT},
    ours=Entry("brambling", "peers.systems.brambling_files:Grep", (0, 1)),
    peers=(
        Entry("ripgrep", "peers.systems.programs:Ripgrep", (0, 1)),
        Entry("GNU grep", "peers.systems.programs:GnuGrep", (0, 1)),
    ),
)

WORD_COUNT = Workload(
    name="word-count",
    what="how often each word of a file in memory occurs; an iteration is the whole",
    data="words",
    shapes=_TEXT,
    check=1,
    allowed={"digest": _EXACT, "counts": _EXACT},
    ours=Entry("brambling", "peers.systems.brambling_files:WordCount", (0, 1)),
    peers=(
        Entry("Polars", "peers.systems.polars_files:WordCount", (0, 1)),
        Entry("DuckDB", "peers.systems.duckdb:WordCount", (0, 1)),
        Entry("PySpark, DataFrame", "peers.systems.spark_files:WordCount", (0, 1)),
    ),
)

WORKLOADS = (LOGISTIC_LBFGS, LOGISTIC_GRADIENT, K_MEANS, PAGERANK, GROUP_SUM, SORT, GREP, WORD_COUNT)
