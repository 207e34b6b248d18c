"""Exceptions of handlers of signals, which Python runs between any two instructions of whatever runs on the main thread."""

from __future__ import annotations

import signal
from types import CodeType, TracebackType
from typing import Any


def from_a_handler(traceback: TracebackType | None) -> bool:
    """Whether a handler raised what has this traceback: then the function in which it was raised has not failed."""
    codes = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    while traceback is not None:
        if traceback.tb_frame.f_code in codes:
            return True
        traceback = traceback.tb_next
    return False


def _code_of(handler: Any) -> CodeType | None:
    """What runs when it is called; nothing of what is written in C."""
    while hasattr(handler, "func"):
        handler = handler.func
    handler = getattr(handler, "__func__", handler)
    code = getattr(handler, "__code__", None)
    if code is None and callable(handler):
        code = getattr(getattr(type(handler), "__call__", None), "__code__", None)
    return code
