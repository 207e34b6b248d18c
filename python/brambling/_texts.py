"""Words of messages."""

from typing import Any


def count(number: int, what: str) -> str:
    """A number of things: 1 row, 2 rows."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def shown(value: Any) -> str:
    """A value as messages show it: as Python does, but for a NaN, which is called so wherever it comes from."""
    if isinstance(value, float) and value != value:
        return "NaN"
    return repr(value)
