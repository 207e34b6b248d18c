"""Functions and classes that other processes cannot import: of the script, and of modules next to it. They are pickled themselves."""

from __future__ import annotations

import functools
import importlib.machinery
import os
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import cloudpickle

# cloudpickle's list of modules is one for all threads.
_registering = threading.RLock()


@contextmanager
def modules_by_value() -> Iterator[None]:
    """Meanwhile functions and classes of modules that are not installed are pickled themselves, and not by their names."""
    with _registering:
        registered = []
        try:
            # numba has a cloudpickle of its own, for the functions that it compiles.
            for pickler in (cloudpickle, sys.modules.get("numba.cloudpickle")):
                if pickler is not None:
                    known = pickler.list_registry_pickle_by_value()
                    for module in _modules_not_installed(len(sys.modules), next(reversed(sys.modules))):
                        if module.__name__ not in known and module.__name__ in sys.modules:
                            pickler.register_pickle_by_value(module)
                            registered.append((pickler, module))
            yield
        finally:
            for pickler, module in registered:
                pickler.unregister_pickle_by_value(module)


def goes_along(name: str) -> bool:
    """Whether what is of a module travels itself, since others cannot import that."""
    return name == "__main__" or name in _names_not_installed(len(sys.modules), next(reversed(sys.modules)))


@functools.lru_cache(maxsize=1)
def _names_not_installed(count: int, newest: str) -> frozenset[str]:
    return frozenset(module.__name__ for module in _modules_not_installed(count, newest))


@functools.lru_cache(maxsize=1)
def _modules_not_installed(_count: int, _newest: str) -> list[ModuleType]:
    """Modules that lie where nobody installs any. They are looked for again when another one was imported."""
    modules = {
        name: module
        for name, module in list(sys.modules.items())
        if isinstance(module, ModuleType) and module.__name__ == name
    }
    files = {name: file for name, module in modules.items() if isinstance(file := getattr(module, "__file__", None), str)}
    # Machine code does not go along: a package that has some is installed, if only for its developers.
    suffixes = tuple(importlib.machinery.EXTENSION_SUFFIXES)
    elsewhere = {"brambling", "__main__", *(name.partition(".")[0] for name, file in files.items() if file.endswith(suffixes))}
    return [
        modules[name]
        for name, file in files.items()
        if name.partition(".")[0] not in elsewhere and not _is_installed(os.path.abspath(file))
    ]


def _is_installed(file: str) -> bool:
    folders = file.split(os.sep)
    return "site-packages" in folders or "dist-packages" in folders or is_of_the_interpreter(file)


def is_of_the_interpreter(file: str) -> bool:
    """Whether a file is of the standard library."""
    folders = file.split(os.sep)
    if "site-packages" in folders or "dist-packages" in folders:
        return False
    return any(file.startswith(sysconfig.get_path(kind) + os.sep) for kind in ("stdlib", "platstdlib"))
