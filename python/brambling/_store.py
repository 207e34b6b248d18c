"""What scripts that are kept in a store say, and when what they have stored goes."""

from __future__ import annotations

import atexit
import sys

from . import _native


def tell(line: str) -> None:
    """Tells people something about a job, once."""
    if sys.stderr is not None:
        print(line, file=sys.stderr, flush=True)


def _clear() -> None:
    # Set for an exception that nobody caught: the script may be started again, to go on.
    if hasattr(sys, "last_value"):
        return
    try:
        _native.clear_stored()
    except Exception as error:
        tell(f"brambling: {error}")


def clears_at_exit() -> None:
    """What this process has stored goes when its script has reached its end."""
    atexit.register(_clear)
