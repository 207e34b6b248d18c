"""Exceptions of kernels on workers, for the process whose program failed there."""

from __future__ import annotations

import pickle
from typing import Any

from brambling._pickled import whole
from brambling._reduced import exception


class RemoteTraceback(Exception):
    """What the interpreter would have printed on the worker. The cause of the exception that was raised there."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return f"\n\"\"\"\n{self.text}\n\"\"\""


class Unsent(Exception):
    """Stands for an exception that cannot leave its worker: what it was, and why it cannot."""

    __module__ = "brambling"


def packed(error: BaseException, bytes_max: int) -> bytes:
    """
    An exception as bytes, without its traceback. What of it cannot be sent is left out, and a note says so; of what cannot be sent at all
    there is what it was, and why not.
    """
    stream, why = _tried(error, bytes_max)
    if stream is None:
        slim = _without_what_cannot_be_sent(error, bytes_max)
        if slim is not None:
            stream, why = _tried(slim, bytes_max)
    if stream is None:
        kind = type(error)
        stream, _ = _tried(Unsent(f"{kind.__qualname__} of `{kind.__module__}` cannot be sent from its worker ({why})"), bytes_max)
    return stream or b""


def unpacked(stream: bytes, traceback: str) -> BaseException | None:
    """
    The exception that `packed` made bytes of; its cause is the traceback from there. None for other bytes.

    Unpickling runs code: give it only what a worker of the own cluster has sent.
    """
    try:
        error = pickle.loads(stream)
    except Exception as why:  # Whatever the class's own code raises.
        error = Unsent(f"the exception cannot be made again here ({type(why).__name__}: {why})")
    if not isinstance(error, BaseException):
        return None
    error.__cause__ = RemoteTraceback(traceback)
    return error


def _tried(error: Any, bytes_max: int) -> tuple[bytes | None, str]:
    """Its bytes, or why there are none that can be read again."""
    try:
        stream = whole(error)
        if len(stream) > bytes_max:
            return None, f"{len(stream)} bytes, where {bytes_max} are the most"
        pickle.loads(stream)
    except Exception as why:  # Whatever its parts raise.
        return None, f"{type(why).__name__}: {why}"
    return stream, ""


def _without_what_cannot_be_sent(error: BaseException, bytes_max: int) -> BaseException | None:
    """A copy of what can be sent; None where even that cannot be made."""
    notes = list(getattr(error, "__notes__", ()))

    def kept(name: str, value: Any) -> bool:
        _, why = _tried(value, bytes_max // 2)
        if why:
            notes.append(f"`{name}`, of type {type(value).__name__}, was left on the worker ({why})")
        return not why

    try:
        arguments = tuple(it if kept(f"args[{n}]", it) else repr(it)[:200] for n, it in enumerate(error.args))
        slim = exception(type(error), arguments)
        for name, value in vars(error).items():
            if name != "__notes__" and kept(name, value):
                setattr(slim, name, value)
        slim.__notes__ = notes
    except Exception:  # Whatever its class's own code raises.
        return None
    return slim
