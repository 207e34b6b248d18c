"""
The logger `brambling`: silent, unless the setting `log` (BRAMBLING_LOG) or the program's own logging asks for more.

logging is imported when there is somebody to tell: it would take its part of the time of `import brambling`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from brambling import _native
from brambling._texts import count

if TYPE_CHECKING:
    import logging

FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


@functools.cache
def _level() -> str:
    return _native.setting("log")


@functools.cache
def _made() -> logging.Logger:
    import logging

    made = logging.getLogger("brambling")
    if _level() == "off":
        # Without a handler of anybody's, warnings would go to standard error.
        made.addHandler(logging.NullHandler())
        return made
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(FORMAT))
    made.addHandler(handler)
    made.setLevel(_level().upper())
    # Otherwise a program that logs to standard error itself would say everything twice.
    made.propagate = False
    return made


def logger() -> logging.Logger | None:
    """The logger; none where nobody can listen, because nobody has imported logging."""
    if "logging" not in sys.modules and _level() == "off":
        return None
    return _made()


def began(program: str, text: Callable[[], str], threads: int | None) -> None:
    """Tells that a program runs; its text goes to those who debug."""
    to = logger()
    if to is not None:
        to.info("program %r begins%s", program, "" if threads is None else f", threads={threads}")
        if to.isEnabledFor(10):  # DEBUG
            to.debug("%s", text())


def ended(tally: dict[str, Any]) -> None:
    """Tells what a run did."""
    to = logger()
    if to is not None:
        to.info(
            "ended: %s in %.3f s on %s, %.1f MB at most",
            count(tally["tasks"], "task"), tally["wall_s"], count(tally["threads"], "thread"), tally["peak_bytes"] / 2**20,
        )
