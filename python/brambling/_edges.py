"""Edges as graph algorithms take them: columns of ids, and numbers that belong to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from brambling import _lists, _native
from brambling._errors import BuildError, refuse_unreadable
from brambling._texts import count, shown

_BEYOND = np.iinfo(np.int64).max


class Edges:
    """Edges whose ends are places in `ids`, which ascend: the ids that occur in the three columns."""

    def __init__(self, src: Any, dst: Any, weight: Any = None, directed: bool = True, vertices: Any = None) -> None:
        columns = {"src": _ids("src", src), "dst": _ids("dst", dst)}
        starts, ends = columns.values()
        if len(starts) != len(ends):
            raise BuildError(
                f"src has {count(len(starts), 'id')} and dst has {count(len(ends), 'id')}; give one of each for every edge"
            )
        columns["vertices"] = np.zeros(0, np.int64) if vertices is None else _ids("vertices", vertices)
        if not any(map(len, columns.values())):
            raise BuildError("src and dst are empty; give at least one edge, or vertices=")
        self.ids, sources, targets = _relabelled(columns)
        weights = None if weight is None else _weights(weight, len(starts))
        self.given = len(starts)
        if not directed:
            # A self-loop leads both ways already.
            other = sources != targets
            if weights is not None:
                weights = np.concatenate([weights, weights[other]])
            sources, targets = (
                np.concatenate([sources, targets[other]]),
                np.concatenate([targets, sources[other]]),
            )
        self.arrays = len(self.ids), sources, targets, weights

    def vertex(self, name: str, value: Any) -> int:
        """The place of an id."""
        wanted = "string" if self.ids.dtype.kind in "UO" else "integer"
        if _lists.kind_of(type(value)) == wanted:
            at = self._place(str(value) if wanted == "string" else int(value))
            if at is not None:
                return at
        raise BuildError(f"{name} {shown(value)} is no vertex; give one of the ids in src and dst, or list it in vertices")

    def _place(self, value: str | int) -> int | None:
        # NumPy would compare integers of two types as floats.
        if isinstance(value, int):
            kind = np.iinfo(self.ids.dtype)
            if not kind.min <= value <= kind.max:
                return None
        at = int(np.searchsorted(self.ids, value if isinstance(value, str) else self.ids.dtype.type(value)))
        # Not as NumPy has it, which drops a text's last NULs.
        return at if at < len(self.ids) and self.ids[at : at + 1].tolist() == [value] else None

    def shares(self, personalization: Mapping[Any, float] | None) -> np.ndarray | None:
        """What a personalization gives each vertex."""
        if personalization is None:
            return None
        if not isinstance(personalization, Mapping):
            raise BuildError(
                f"personalization is a {type(personalization).__name__}; give a mapping from ids to shares, such as {{id: 1.0}}"
            )
        shares = np.zeros(len(self.ids))
        for vertex, given in personalization.items():
            share = number(f"personalization[{shown(vertex)}]", given)
            if not 0 <= share < np.inf:
                raise BuildError(
                    f"personalization[{shown(vertex)}] = {shown(share)} cannot be used; give shares that are finite and not negative"
                )
            shares[self.vertex("personalization's key", vertex)] = share
        return shares


def number(name: str, value: Any) -> float:
    """A parameter as a float."""
    if _lists.kind_of(type(value)) not in ("integer", "number"):
        raise BuildError(f"{name} = {shown(value)} cannot be used; give a number")
    try:
        return float(value)
    except OverflowError:
        raise BuildError(f"{name} = {shown(value)} cannot be used: float64 has no number as large; give a smaller one") from None


def whole(name: str, value: Any, least: int) -> int:
    """A parameter that counts."""
    if _lists.kind_of(type(value)) == "integer" and least <= value < 2**64:
        return int(value)
    raise BuildError(f"{name} = {shown(value)} cannot be used; give an integer of at least {least} (and below 2**64)")


def _ids(name: str, given: Any) -> np.ndarray:
    """Ids as an array of integers or of text."""
    refuse_unreadable(given, name)
    ids, values = _lists.column(given, name)
    if ids.ndim == 0 and not isinstance(given, np.ndarray):
        raise BuildError(f"{name} is a {type(given).__name__}, not a column of ids; give a list or an array of them")
    if ids.ndim != 1:
        raise BuildError(f"{name} has {count(ids.ndim, 'dimension')} and shape {ids.shape}; give a column of ids")
    if not len(ids):
        return np.zeros(0, np.int64)
    if values is None:
        return ids if ids.dtype.kind in "iuU" else _refuse_type(name, ids)
    if ids.dtype == object and _lists.kinds_of(values) == {"integer"}:
        ids = _lists.array_of(values)
    return _checked(name, values, ids)


def _checked(name: str, values: list[Any], ids: np.ndarray) -> np.ndarray:
    """Ids that are of one kind, and of a type that the engine has."""
    kinds = _lists.kinds_of(values)
    if kinds == {"integer"} and ids.dtype == object:
        _refuse_large(name, values)
    if kinds == {"integer"} or kinds == {"string"}:
        return ids
    if kinds.isdisjoint({"integer", "string"}) and ids.dtype != object:
        _refuse_type(name, ids)
    of_rows = [_lists.kind_of(type(value)) for value in values]
    # The first id says of which kind they are.
    wanted = next((kind for kind in of_rows if kind in ("integer", "string")), None)
    _refuse_row(name, values, next(row for row, kind in enumerate(of_rows) if kind != wanted))


def _refuse_row(name: str, values: list[Any], row: int) -> NoReturn:
    missing = "edges without an end" if name in ("src", "dst") else "those that are missing"
    raise BuildError(
        f"{name} has {shown(values[row])} at row {row} (counted from 0) among other ids; "
        f"give integers only or strings only, and drop {missing} first"
    )


def _refuse_type(name: str, ids: np.ndarray) -> NoReturn:
    missing = np.isnan(ids) if ids.dtype.kind == "f" else np.zeros(1, bool)
    if missing.any():
        # pandas makes floats of integers where one is missing.
        _refuse_row(name, ids.tolist(), int(missing.argmax()))
    fix = "astype(np.int64) makes integers of it" if ids.dtype.kind in "fb" else "give integers or strings"
    raise BuildError(f"{name} holds {ids.dtype}, and ids are integers or strings; {fix}")


def _refuse_large(name: str, values: list[Any]) -> NoReturn:
    """Of integers that no type of NumPy's has together."""
    whole = list(map(int, values))
    cause = "which 64 bits do not hold"
    row = _lists.first_row(whole, lambda value: not -_BEYOND - 1 <= value <= 2 * _BEYOND + 1)
    if row is None:
        cause = f"beyond 2**63 - 1, among negative ids, such as {min(whole)}"
        row = next(row for row, value in enumerate(whole) if value > _BEYOND)
    raise BuildError(
        f"{name} has {whole[row]} at row {row} (counted from 0), {cause}; give ids below 2**63, or make strings of them"
    )


def _relabelled(columns: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The ids that occur, ascending, and the edges' ends as places among them."""
    held = {name: ids for name, ids in columns.items() if len(ids)}
    kinds = {name: "strings" if ids.dtype.kind in "UO" else "integers" for name, ids in held.items()}
    if len(set(kinds.values())) > 1:
        first, *_ = kinds
        other = next(name for name in kinds if kinds[name] != kinds[first])
        raise BuildError(
            f"{first} has {kinds[first]} and {other} has {kinds[other]}; give the same kind of ids in {'both' if len(kinds) == 2 else 'all'}"
        )
    edges = len(columns["src"])
    if "strings" in kinds.values():
        ids, places = np.unique(np.concatenate(list(held.values())), return_inverse=True)
        places = places.astype(np.uint32)
        return ids, places[:edges], places[edges : 2 * edges]
    kind = _common(held)
    # Order-preserving: the sign's bit is turned.
    flip = np.uint64(1 << 63) if kind == np.int64 else np.uint64(0)
    keys = [ids.astype(kind).view(np.uint64) ^ flip for ids in columns.values()]
    ids, sources, targets = _native.relabel(*keys)
    ids = (ids ^ flip).view(kind)
    width = np.result_type(*(ids.dtype for ids in held.values()))
    return ids.astype(width) if width.kind in "iu" else ids, sources, targets


def _common(columns: dict[str, np.ndarray]) -> type[np.int64] | type[np.uint64]:
    """The type of 64 bits that has all of these integers."""
    signed = [name for name, ids in columns.items() if ids.dtype.kind == "i"]
    large = [name for name, ids in columns.items() if ids.max() > _BEYOND]
    if not signed or not large:
        return np.int64 if signed else np.uint64
    negative = next((name for name in signed if columns[name].min() < 0), None)
    if negative is None:
        return np.uint64
    ids = columns[large[0]]
    row = int((ids > _BEYOND).argmax())
    raise BuildError(
        f"{large[0]} has {ids[row]} at row {row} (counted from 0), beyond 2**63 - 1, and {negative} has negative ids, such as "
        f"{columns[negative].min()}; give ids below 2**63, or make strings of them"
    )


def _weights(weight: Any, edges: int) -> np.ndarray:
    refuse_unreadable(weight, "weight")
    weights, _ = _lists.column(weight, "weight")
    if weights.shape != (edges,):
        raise BuildError(
            f"weight has shape {weights.shape} for {count(edges, 'edge')}; give one weight for each edge, or none at all"
        )
    if weights.dtype == object:
        weights = np.array([_weight(row, value) for row, value in enumerate(weights.tolist())])
    if weights.dtype.kind not in "fiub":
        raise BuildError(f"weight holds {weights.dtype}, and weights are numbers; astype(np.float64) may make numbers of it")
    return np.require(weights, np.float64, ["C", "A"])


def _weight(row: int, value: Any) -> float:
    if not isinstance(value, str | bytes) and not _lists.is_missing(value):
        try:
            return float(value)
        except OverflowError:
            raise BuildError(f"edge {row} (counted from 0) has weight {shown(value)}, beyond float64; scale the weights first") from None
        except (TypeError, ValueError):
            pass
    raise BuildError(
        f"edge {row} (counted from 0) has weight {shown(value)}, which is no number; replace such weights or drop their edges first"
    )
