"""NumPy's BLAS on one thread while a program runs: how it splits a sum must not depend on the machine."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_NAMES = [
    (f"{prefix}_get_num_threads{suffix}", f"{prefix}_set_num_threads{suffix}")
    for prefix in ("scipy_openblas", "openblas")
    for suffix in ("64_", "", "_64")
] + [("MKL_Get_Max_Threads", "MKL_Set_Num_Threads")]


@functools.cache
def _controls() -> list[tuple[Callable[[], int], Callable[[int], None]]]:
    """What reads and sets the threads of the BLAS libraries of this process."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            maps = file.read()
    except OSError:
        return []
    # The sixth field, which may contain spaces, is the file.
    files = {fields[5].strip() for line in maps.splitlines() if len(fields := line.split(maxsplit=5)) == 6}
    controls = []
    for path in sorted(files):
        if any(name in os.path.basename(path) for name in ("openblas", "mkl_rt")):
            library = ctypes.CDLL(path)
            for get, set_ in _NAMES:
                if hasattr(library, get) and hasattr(library, set_):
                    controls.append((getattr(library, get), getattr(library, set_)))
                    break
    return controls


_lock = threading.Lock()
_holders = 0
_before: list[int] = []


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold the threads at one, then restore them: the last of several runs does."""
    global _holders, _before
    with _lock:
        _holders += 1
        if _holders == 1:
            _before = [get() for get, _ in _controls()]
            for _, set_ in _controls():
                set_(1)
    try:
        yield
    finally:
        with _lock:
            _holders -= 1
            if _holders == 0:
                for (_, set_), threads in zip(_controls(), _before, strict=True):
                    set_(threads)
