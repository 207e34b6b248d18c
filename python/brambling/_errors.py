"""What can go wrong, as exceptions."""

from typing import Any

import numpy as np


class Error(Exception):
    """Whatever the package raises of its own."""

    __module__ = "brambling"


class BuildError(Error, ValueError):
    """A statement or a program is refused; the message names the stage, the datasets and the fix."""

    __module__ = "brambling"


class BuildTypeError(BuildError, TypeError):
    """As a `BuildError`; what was given is of a type that nothing can be made of."""

    __module__ = "brambling"


class NotFitted(Error, ValueError, AttributeError):
    """A model is asked for what only a fitted one knows; the message says how to fit it."""

    __module__ = "brambling"


class KernelError(Error, RuntimeError):
    """
    A kernel failed, in this process or on a worker. Its own exception is the cause (`__cause__`); that of one from a worker has
    the traceback from there as its own cause.

    Attributes
    ----------
    stage : str or None
        The stage that ran the kernel.
    partition : int or None
        Index of the partition it ran on.
    turn : int or None
        How often the enclosing loop's body had been entered before.
    """

    __module__ = "brambling"

    stage: str | None = None
    partition: int | None = None
    turn: int | None = None


class ClusterError(Error, RuntimeError):
    """
    A cluster cannot be reached, is gone, has lost a worker, or could not build or end a program; the message has what, where and
    the way out.
    """

    __module__ = "brambling"


class StoreError(Error, OSError):
    """What is to be kept of a job cannot be kept, or read; the message has the store, the cause and the way out."""

    __module__ = "brambling"


class NotKept(Error, KeyError):
    """A result is asked for a dataset that it does not have; the message names those it has, and the way out."""

    __module__ = "brambling"
    # A KeyError shows its key's repr; this one has a sentence.
    __str__ = Exception.__str__


class OutOfMemory(Error, MemoryError):
    """The memory budget is used up; the message names the stage and the setting."""

    __module__ = "brambling"


class Stalled(Error, RuntimeError):
    """Nothing progresses any more; the message names what waits, and for what."""

    __module__ = "brambling"


class SettingsError(Error, ValueError):
    """A setting cannot be used; the message names where it was given."""

    __module__ = "brambling"


class VersionMismatch(Error, RuntimeError):
    """A program comes from another version of the package or of Python; the message names both, and what to do."""

    __module__ = "brambling"


class MissingExtra(Error, ImportError):
    """Something needs a package that is not installed; the message says how to install it."""

    __module__ = "brambling"


class ConvergenceWarning(UserWarning):
    """A model's fit ended before it had converged, or found fewer clusters than asked for."""

    __module__ = "brambling"


class ClusterWarning(UserWarning):
    """A program waits for a worker that has told nothing for a while, and is not known to be gone; the message says which."""

    __module__ = "brambling"


class DataConversionWarning(UserWarning):
    """Data of an unexpected shape was taken for what it most likely is; the message says how to give it."""

    __module__ = "brambling"


def refuse_unreadable(value: Any, what: str) -> None:
    """Refuses what NumPy would make something else of: masked arrays, and frames that have yet to be computed."""
    if hasattr(value, "collect") and not hasattr(value, "__array__") and not hasattr(value, "__arrow_c_stream__"):
        raise BuildError(f"{what} is a {type(value).__name__}, whose rows are not there yet; give its collect()")
    # NumPy's conversions forget the mask: values that were masked out would count.
    if np.ma.is_masked(value):
        raise BuildError(
            f"{what} is a masked array, and its mask would be lost; drop the masked rows, or give its filled(value)"
        )
