"""The end of a child that a kernel has forked."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback


def end(error: BaseException | None) -> None:
    """Ends the process as a script ends: with what its function raised, if it did."""
    code = 0
    with contextlib.suppress(Exception):
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        elif error is not None:
            code = 1
            traceback.print_exception(error, file=sys.__stderr__)
    for stream in (sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(Exception):
            if stream is not None:
                stream.flush()
    # Nothing that was registered for the end of the process that was forked is this one's to do.
    os._exit(code & 0xFF)
