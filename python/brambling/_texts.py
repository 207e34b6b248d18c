"""Words of messages."""

from collections.abc import Sequence
from typing import Any


def count(number: int, what: str) -> str:
    """A number of things: 1 row, 2 rows."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def named(what: str, names: Sequence[str]) -> str:
    """Things by their names, the first five: column 'a'; columns 'a', 'b'."""
    return f"{what if len(names) == 1 else f'{what}s'} {', '.join(map(repr, names[:5]))}{', ...' * (len(names) > 5)}"


def short(value: Any) -> str:
    """A value as Python shows it, on one line and not much of it."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 40 else text[:37] + "..."


def shown(value: Any) -> str:
    """A value as messages show it: as Python does, but for a NaN, which is called so wherever it comes from."""
    if isinstance(value, float) and value != value:
        return "NaN"
    return repr(value)
