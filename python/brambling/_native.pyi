from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np

__all__ = [
    "Builder",
    "Cluster",
    "Ledger",
    "Outcome",
    "PrintPlace",
    "Report",
    "__version__",
    "bfs",
    "block_rows",
    "blocks_of_partition",
    "builtin_code",
    "centre_distances",
    "class_margins",
    "clear_stored",
    "command",
    "connected_components",
    "coflow_simulate",
    "fit_k_means",
    "fit_logistic",
    "fit_model",
    "ideal_time",
    "label_propagation",
    "least_seconds",
    "local_clustering",
    "log_probabilities",
    "logistic_gradient",
    "map_reduce_builtin",
    "margins",
    "models",
    "nearest_centres",
    "pagerank",
    "partition_of_key",
    "partitions_for",
    "print_here",
    "print_place",
    "processor",
    "quantity",
    "read_bandwidth",
    "PartsWriter",
    "Reserved",
    "relabel",
    "reserve",
    "setting",
    "sigmoid",
    "silence_told_after_s",
    "sssp",
    "start_k_means",
]

__version__: str
silence_told_after_s: float

@final
class Builder:
    def __new__(cls, name: str, seed: int) -> Builder: ...
    def dataset(self, name: str, value: Any, partitions: int) -> int: ...
    def given(self, name: str, partitions: int) -> int: ...
    def load(self, name: str, parts: list[tuple[Any, list[Any]]]) -> int: ...
    def map(
        self,
        name: str,
        result: str,
        call: Callable[..., Any],
        code: bytes,
        reads: Sequence[int],
        per_block: bool,
        compile: Callable[..., Any] | None = None,
    ) -> int: ...
    def update(
        self, name: str, dataset: int, call: Callable[..., Any], code: bytes, reads: Sequence[int]
    ) -> None: ...
    def reduce(
        self, name: str, result: str, combine: Callable[[Any, Any], Any], code: bytes, dataset: int, sum: bool
    ) -> int: ...
    def broadcast(self, dataset: int, like: int, result: str) -> int: ...
    def scatter(
        self,
        name: str,
        call: Callable[..., Any],
        code: bytes,
        reads: Sequence[int],
        offsets: tuple[list[int], bool] | None,
    ) -> int: ...
    def gather(
        self,
        exchange: int,
        name: str,
        result: str,
        call: Callable[..., Any],
        code: bytes,
        reads: Sequence[int],
        partitions: int,
    ) -> int: ...
    def mark_hashed(self, dataset: int) -> None: ...
    def signal(self, name: str, call: Callable[..., Any], code: bytes, dataset: int) -> int: ...
    def begin_repeat(self, turns: int) -> None: ...
    def begin_while(self, name: str, call: Callable[..., Any], code: bytes, dataset: int) -> None: ...
    def begin_if(self, signal: int) -> int: ...
    def begin_else(self, branch: int) -> None: ...
    def end(self) -> None: ...
    def keep(self, dataset: int) -> None: ...
    def is_kept(self, dataset: int) -> bool: ...
    def partitions(self, dataset: int) -> int: ...
    def partitioner(self, dataset: int) -> str: ...
    def is_blocked(self, dataset: int) -> bool: ...
    def text(self) -> str: ...
    def picture(self) -> str: ...
    def hash(self) -> int: ...
    @staticmethod
    def encoded(value: Any, chunk_bytes: int | None = None) -> bytes: ...
    @staticmethod
    def decoded(bytes: bytes, chunk_bytes: int | None = None) -> Any: ...
    @staticmethod
    def encoded_blocks(first: int, values: list[Any], whole: Any, chunk_bytes: int | None = None) -> bytes: ...
    @staticmethod
    def decoded_blocks(bytes: bytes, chunk_bytes: int | None = None) -> tuple[int, list[Any], Any]: ...
    def run(
        self,
        threads: int | None,
        weight: int | None,
        store: str | None = None,
        snapshot_every: str | None = None,
    ) -> Outcome: ...

@final
class Outcome:
    def values(self, dataset: int) -> list[Any]: ...
    def tally(self) -> dict[str, float]: ...
    def ledger(self) -> Ledger: ...

@final
class Ledger:
    def __new__(cls, json: str) -> Ledger: ...
    def json(self) -> str: ...

@final
class Report:
    def __new__(cls, ledger: Ledger) -> Report: ...
    actual_seconds: float
    ideal_seconds: float | None
    share_of_ideal: float | None
    bound_by: str | None
    is_probed: bool
    advice: list[str]
    def headline(self) -> str: ...
    def text(self) -> str: ...
    def json(self) -> str: ...
    def map_reduce_steps(self) -> str: ...
    def html(self) -> str: ...
    def fragment(self) -> str: ...
    def trace(self) -> bytes: ...
    def trace_json(self) -> str: ...

@final
class Cluster:
    def __new__(cls, address: str | None, token_file: str | None, tls: str | None) -> Cluster: ...
    def address(self) -> str: ...
    def status(self) -> str: ...
    def run(self, builder: Builder, bytes: bytes, weight: int | None, snapshot_every: str | None = None) -> Outcome: ...
    def close(self) -> None: ...

@final
class PrintPlace:
    def enter(self) -> None: ...

@final
class Reserved:
    @property
    def nbytes(self) -> int: ...
    def release(self) -> None: ...
    def __enter__(self) -> Reserved: ...
    def __exit__(self, kind: object, error: object, traceback: object) -> None: ...

def reserve(bytes: int) -> Reserved: ...
def print_place() -> PrintPlace | None: ...
def print_here(text: str, to_errors: bool) -> bool: ...
def block_rows() -> int: ...
def partitions_for(blocks: int, bytes: int) -> int: ...
def blocks_of_partition(partition: int, partitions: int, blocks: int) -> tuple[int, int]: ...
def partition_of_key(key: Any, partitions: int) -> int: ...
def builtin_code(name: str) -> int: ...
def logistic_gradient(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray: ...
def read_bandwidth(array: np.ndarray, threads: int, rounds: int) -> float: ...
def least_seconds(read_bytes: float, flops: float, threads: int) -> tuple[float, str]: ...
def processor() -> tuple[str, str]: ...
def quantity(text: str, kind: str) -> float: ...
def coflow_simulate(
    words: list[str],
) -> list[tuple[str, str, list[int], list[float], list[float], list[float], list[float]]]: ...
def ideal_time(
    *,
    nodes: int,
    input: float,
    disk_read: float,
    disk_write: float,
    network: float,
    replication: int,
    map_ratio: float,
    reduce_ratio: float,
    external: bool,
    backup: bool,
    took: float | None,
) -> tuple[str, str]: ...
def fit_logistic(
    x: np.ndarray,
    y: np.ndarray,
    columns: int,
    classes: int,
    *,
    weights: np.ndarray | None = None,
    start: Sequence[float] | None = None,
    lbfgs: bool,
    c: float,
    fit_intercept: bool,
    tol: float,
    max_iter: int,
    threads: int | None = None,
) -> dict[str, Any]: ...
def models() -> list[tuple[str, list[str]]]: ...
def fit_model(
    name: str,
    x: np.ndarray,
    columns: int,
    y: np.ndarray | None,
    weights: np.ndarray | None,
    parameters: dict[str, float],
    *,
    threads: int | None = None,
) -> dict[str, Any]: ...
def start_k_means(
    x: np.ndarray,
    columns: int,
    clusters: int,
    *,
    weights: np.ndarray | None = None,
    plus_plus: bool,
    seed: int,
    threads: int | None = None,
) -> np.ndarray: ...
def fit_k_means(
    x: np.ndarray,
    columns: int,
    centres: np.ndarray,
    *,
    weights: np.ndarray | None = None,
    tol: float,
    max_iter: int,
    threads: int | None = None,
) -> dict[str, Any]: ...
def nearest_centres(
    x: np.ndarray, columns: int, centres: np.ndarray, weights: np.ndarray | None = None
) -> tuple[np.ndarray, float]: ...
def centre_distances(x: np.ndarray, columns: int, centres: np.ndarray) -> np.ndarray: ...
def margins(x: np.ndarray, weights: np.ndarray, intercept: float) -> np.ndarray: ...
def class_margins(
    x: np.ndarray, weights: np.ndarray, intercepts: np.ndarray, *, probabilities: bool
) -> np.ndarray: ...
def sigmoid(x: np.ndarray) -> np.ndarray: ...
def log_probabilities(margins: np.ndarray, classes: int) -> np.ndarray: ...
def clear_stored() -> None: ...
def setting(key: str) -> str: ...
def command(args: list[str], host: Any) -> int: ...

def relabel(
    sources: np.ndarray, targets: np.ndarray, others: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]: ...
def pagerank(
    vertices: int,
    sources: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray | None,
    *,
    damping: float,
    tol: float,
    max_iter: int,
    personalization: np.ndarray | None,
    single: bool,
) -> dict[str, Any]: ...
def map_reduce_builtin(
    files: list[str],
    *,
    map: str,
    reduce: str,
    output: str | None = None,
    partitions: int | None = None,
    backup: bool,
    replication: int,
    threads: int | None = None,
) -> dict[str, Any]: ...
@final
class PartsWriter:
    def __new__(cls, output: str) -> PartsWriter: ...
    def begin_part(self) -> None: ...
    def write(self, bytes: bytes) -> None: ...
    def commit(self) -> list[Path]: ...
    def abandon(self) -> None: ...

def connected_components(
    vertices: int, sources: np.ndarray, targets: np.ndarray, weights: np.ndarray | None
) -> np.ndarray: ...
def bfs(
    vertices: int, sources: np.ndarray, targets: np.ndarray, weights: np.ndarray | None, *, start: int
) -> np.ndarray: ...
def sssp(
    vertices: int,
    sources: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray | None,
    *,
    given: int,
    start: int,
) -> np.ndarray: ...
def label_propagation(
    vertices: int, sources: np.ndarray, targets: np.ndarray, weights: np.ndarray | None, *, turns: int
) -> np.ndarray: ...
def local_clustering(
    vertices: int, sources: np.ndarray, targets: np.ndarray, weights: np.ndarray | None
) -> np.ndarray: ...
