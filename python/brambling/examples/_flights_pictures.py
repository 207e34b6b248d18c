"""Pictures of the flights' groups and of the airports' ranks, drawn without a screen."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import StrMethodFormatter

import brambling as br
from brambling.examples._flights_data import Airport
from brambling.examples._flights_outline import OUTLINE

# Okabe and Ito's colours, which people who are blind to some can tell apart. The smallest group has the last.
COLOURS = ("#0072B2", "#56B4E9", "#E69F00", "#009E73", "#D55E00")
BLUE, VERMILION, LAND = "#0072B2", "#D55E00", "#EFEDE6"
DOTS_PER_INCH = 130

SHOWN = 12_000
MILES = (0, 2_800)
MINUTES = (-80, 360)

NEW_YORK = ("EWR", "JFK", "LGA")
NAMED = 22
# What a city is called, and where that has room beside its dot; other airports go by their codes, on the right.
CITIES = {
    "ATL": ("Atlanta", "right"), "BNA": ("Nashville", "right"), "BOS": ("Boston", "right"), "CLT": ("Charlotte", "right"),
    "DCA": ("Washington", "right"), "DEN": ("Denver", "right"), "DFW": ("Dallas", "right"), "DTW": ("Detroit", "above"),
    "FLL": ("Fort Lauderdale", "right"), "IAH": ("Houston", "right"), "LAX": ("Los Angeles", "left"), "MCO": ("Orlando", "right"),
    "MIA": ("Miami", "below"), "MSP": ("Minneapolis", "right"), "ORD": ("Chicago", "above"), "PBI": ("Palm Beach", "right"),
    "RDU": ("Raleigh", "right"), "SFO": ("San Francisco", "below"), "TPA": ("Tampa", "left"),
}
HALO = [withStroke(linewidth=2.5, foreground="white", alpha=0.8)]
POINTS_PER_RANK = 6_500
FLIGHTS_PER_POINT = 1_500

Point = tuple[float, float]


def groups(table: np.ndarray, labels: np.ndarray, names: list[str]) -> Figure:
    """Flights by hour and distance, and by hour and delay, in the colours of their groups."""
    figure = Figure(figsize=(12, 6.8), dpi=DOTS_PER_INCH, layout="constrained")
    figure.suptitle(f"{len(names)} groups of flights from New York, 2013, as k-means finds them by delay, distance and hour",
                    fontsize=14)
    sizes = np.bincount(labels, minlength=len(names))
    order = np.argsort(-sizes).tolist()
    colours = {group: colour for group, colour in zip(order, COLOURS, strict=True)}
    # Some of the flights: all of them would be a wall of ink.
    rows = np.random.default_rng(0).permutation(len(table))[:SHOWN]
    delay, distance, hour = table[rows].T
    by_distance, by_delay = figure.subplots(1, 2)
    for axes, values in ((by_distance, distance), (by_delay, delay)):
        axes.scatter(hour, values, s=7, c=[colours[group] for group in labels[rows].tolist()], alpha=0.55, linewidths=0)
        axes.set(xlim=(4.5, 24.5), xticks=range(6, 25, 3), xlabel="scheduled departure (hour of the day)")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    by_distance.set(ylim=MILES, ylabel="distance (miles)")
    by_distance.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    by_delay.set(ylim=MINUTES, ylabel="delay at arrival (minutes)")
    figure.legend(
        handles=[Line2D([], [], marker="o", linestyle="", markersize=9, color=colours[group]) for group in order],
        labels=[f"{names[group]}\n{sizes[group]:,} flights\nmean delay {round(table[labels == group, 0].mean())} min"
                for group in order],
        loc="outside lower center", ncols=len(names), frameon=False,
    )
    beyond = np.count_nonzero((distance > MILES[1]) | (delay < MINUTES[0]) | (delay > MINUTES[1]))
    by_delay.text(1, 1, f"{len(rows):,} of {len(table):,} flights are drawn, {beyond} of them beyond an edge",
                  transform=by_delay.transAxes, ha="right", va="bottom", fontsize=8, color="#606060")
    return figure


def albers(longitude: np.ndarray, latitude: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Albers' equal-area conic projection, as maps of the United States have it (Snyder, Map Projections, 1987, p. 100)."""
    first, second, origin, centre = np.radians([29.5, 45.5, 37.5, -96.0])
    n = (np.sin(first) + np.sin(second)) / 2
    constant = np.cos(first) ** 2 + 2 * n * np.sin(first)
    radius = np.sqrt(constant - 2 * n * np.sin(np.radians(latitude))) / n
    angle = n * (np.radians(longitude) - centre)
    return radius * np.sin(angle), np.sqrt(constant - 2 * n * np.sin(origin)) / n - radius * np.cos(angle)


def airports(ranks: br.graph.Ranks, flown: tuple[np.ndarray, np.ndarray], known: dict[str, Airport]) -> Figure:
    """A map: dots as large as ranks, lines as wide as flights are many."""
    figure = Figure(figsize=(12, 7.6), dpi=DOTS_PER_INCH, layout="constrained")
    axes = figure.subplots()
    axes.set_aspect("equal")
    axes.axis("off")
    axes.set_title("Airports ranked by PageRank over the flights from New York, 2013", fontsize=14)
    axes.fill(*albers(*np.array(OUTLINE).T), color=LAND, zorder=0)
    largest = list(ranks.largest("rank", len(ranks)))
    places = {code: _place(known[code]) for code, _ in largest if code in known and known[code].longitude > OUTLINE[0][0]}
    _draw_flights(axes, places, flown)
    for code, rank in largest:
        if code in places:
            axes.scatter(*places[code], s=rank * POINTS_PER_RANK, color=VERMILION if code in NEW_YORK else BLUE, alpha=0.8,
                         linewidths=0.6, edgecolors="white", zorder=3)
    for code, rank in largest[:NAMED]:
        if code in places and code not in NEW_YORK:
            _name(axes, code, rank, places[code])
    _name_new_york(axes, dict(largest), places)
    _explain(axes, [code for code, _ in largest if code not in places])
    return figure


def _place(airport: Airport) -> Point:
    x, y = albers(np.array(airport.longitude), np.array(airport.latitude))
    return float(x), float(y)


def _draw_flights(axes: Axes, places: dict[str, Point], flown: tuple[np.ndarray, np.ndarray]) -> None:
    pairs, flights = np.unique(np.stack(flown), axis=1, return_counts=True)
    for (origin, dest), count in zip(pairs.T.tolist(), flights.tolist(), strict=True):
        if origin in places and dest in places:
            axes.plot(*zip(places[origin], places[dest], strict=True), color=BLUE, alpha=0.18,
                      linewidth=count / FLIGHTS_PER_POINT, solid_capstyle="butt", zorder=2)


def _name(axes: Axes, code: str, rank: float, place: Point) -> None:
    radius = (rank * POINTS_PER_RANK) ** 0.5 / 2
    city, side = CITIES.get(code, (code, "right"))
    shift, ha, va = {
        "right": ((radius + 2, 0), "left", "center"),
        "left": ((-radius - 2, 0), "right", "center"),
        "above": ((0, radius + 1), "center", "bottom"),
        "below": ((0, -radius - 2), "center", "top"),
    }[side]
    axes.annotate(f"{city} {rank:.1%}", place, xytext=shift, textcoords="offset points", ha=ha, va=va, fontsize=9,
                  path_effects=HALO, zorder=4)


def _name_new_york(axes: Axes, ranks: dict[str, float], places: dict[str, Point]) -> None:
    told = "\n".join(f"{code} {ranks[code]:.1%}" for code in NEW_YORK)
    axes.annotate(f"New York\n{told}", places["JFK"], xytext=(22, -8), textcoords="offset points", fontsize=10,
                  color="#A04000", va="center", path_effects=HALO, zorder=4)


def _explain(axes: Axes, missing: list[str]) -> None:
    axes.text(0.01, 0.02, "A dot's area is its airport's rank: the share of stops there of a passenger who takes\n"
              "flights at random, each both ways. A line's width is the number of flights.\n"
              f"Not on this map: {', '.join(missing)}.", transform=axes.transAxes, fontsize=9, color="#505050")
