"""Exceptions of kernels on workers, for the process whose program failed there."""

from __future__ import annotations

import pickle

import cloudpickle

from brambling._by_value import modules_by_value


class RemoteTraceback(Exception):
    """What the interpreter would have printed on the worker. The cause of the exception that was raised there."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return f"\n\"\"\"\n{self.text}\n\"\"\""


def packed(error: BaseException) -> bytes:
    """
    An exception as bytes, without its traceback.

    Raises
    ------
    Exception
        Whatever its parts raise that cannot be pickled.
    """
    with modules_by_value():
        stream: bytes = cloudpickle.dumps(error)
    return stream


def unpacked(stream: bytes, traceback: str) -> BaseException | None:
    """
    The exception that `packed` made bytes of; its cause is the traceback from there. None when it cannot be made here: there are
    exceptions that take other arguments than they keep.

    Unpickling runs code: give it only what a worker of the own cluster has sent.
    """
    try:
        error = pickle.loads(stream)
    except Exception:  # Whatever the class's own code raises.
        return None
    if not isinstance(error, BaseException):
        return None
    error.__cause__ = RemoteTraceback(traceback)
    return error
