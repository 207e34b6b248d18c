"""
How objects are made again elsewhere of which pickle does not know that: those that it takes for names, such as what functools wraps, where names
of the script are nothing; and exceptions, whose classes often take other arguments than they keep.
"""

from __future__ import annotations

import functools
import pickle
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import cloudpickle

_Cached = type(functools.lru_cache(len))
# All functions that singledispatch makes have this code.
_DISPATCHING = functools.singledispatch(len).__code__  # type: ignore[attr-defined]  # A function, for all that typeshed says.
# Of classes that class statements have made.
_HEAP_TYPE = 1 << 9
# What each such wrapper has of its own accord.
_USUAL = frozenset(vars(functools.lru_cache(lambda: None))) | {"__wrapped__"}


def reduced(obj: Any) -> Any:
    """
    How such an object is made again elsewhere; NotImplemented where pickle knows it, or its name is enough.

    Raises
    ------
    pickle.PicklingError
        It is known by its name alone, in a module that others cannot import.
    """
    kind = type(obj)
    if kind is FunctionType:
        if obj.__code__ is _DISPATCHING and not _is_found(obj, obj.__module__, obj.__qualname__):
            return _dispatching, _registered(obj)
    elif kind is _Cached:
        if not _is_found(obj, obj.__module__, getattr(obj, "__qualname__", "")):
            how = obj.cache_parameters()
            own = {name: value for name, value in vars(obj).items() if name not in _USUAL}
            return _cached, (obj.__wrapped__, how["maxsize"], how["typed"], own)
    elif isinstance(obj, BaseException):
        return _of_exception(obj)
    elif kind is functools.cached_property:
        # Some versions of Python give it a lock.
        return _cached_property, (obj.func, obj.attrname)
    elif isinstance(kind.__reduce__, FunctionType) and _is_elsewhere(kind.__module__):
        name = obj.__reduce_ex__(5)
        if isinstance(name, str) and not _is_found(obj, kind.__module__, name):
            raise pickle.PicklingError(
                f"`{name}` is pickled by its name, which other processes cannot import from {_place(kind.__module__)}; put it "
                "into a module that is installed on every machine"
            )
        return name if isinstance(name, tuple) else NotImplemented
    return NotImplemented


def wrapped(obj: Any) -> list[Callable[..., Any]]:
    """The functions in such a wrapper."""
    if type(obj) is _Cached:
        return [obj.__wrapped__]
    if type(obj) is FunctionType and obj.__code__ is _DISPATCHING:
        return list(dict.fromkeys(obj.registry.values()))  # type: ignore[attr-defined]
    return []


def _place(module: str) -> str:
    return "the script" if module == "__main__" else f"`{module}`"


def _is_elsewhere(module: str | None) -> bool:
    """Whether other processes cannot import a module of this name, or import another one."""
    by_value = cloudpickle.list_registry_pickle_by_value()
    return module is None or module == "__main__" or any(module == it or module.startswith(f"{it}.") for it in by_value)


def _is_found(obj: Any, module: str | None, name: str) -> bool:
    """Whether other processes find the object by its name."""
    if module is None or _is_elsewhere(module):
        return False
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is obj


def _cached(f: Callable[..., Any], maxsize: int | None, typed: bool, own: dict[str, Any]) -> Any:
    wrapper = functools.lru_cache(maxsize, typed)(f)
    vars(wrapper).update(own)
    return wrapper


def _registered(dispatching: Any) -> tuple[Callable[..., Any], list[tuple[type, Callable[..., Any]]]]:
    """The function for everything else, and those for types."""
    known = dict(dispatching.registry)
    return known.pop(object), list(known.items())


def _dispatching(usual: Callable[..., Any], known: list[tuple[type, Callable[..., Any]]]) -> Any:
    dispatching = functools.singledispatch(usual)
    for kind, f in known:
        dispatching.register(kind, f)
    return dispatching


def _cached_property(f: Callable[[Any], Any], name: str | None) -> Any:
    made = functools.cached_property(f)
    if name is not None:
        made.__set_name__(object, name)
    return made


def _of_exception(error: BaseException) -> Any:
    if isinstance(type(error).__reduce__, FunctionType):
        return NotImplemented
    match error.__reduce_ex__(5):
        # A call of its class with its args, and then its attributes.
        case (kind, arguments, *state) if kind is type(error):
            own = dict(state[0] or ()) if state else {}
            return exception, (kind, arguments), own | _slots(error)
        case _:
            return NotImplemented


def _slots(error: BaseException) -> dict[str, Any]:
    found = {}
    for kind in type(error).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(error, name):
                found[name] = getattr(error, name)
    if isinstance(error, OSError):
        # They may have been set, and are no attributes then of which pickle knows.
        found |= {name: value for name in ("errno", "strerror", "filename", "filename2") if (value := getattr(error, name)) is not None}
    return found


def exception(kind: type[BaseException], arguments: tuple[Any, ...]) -> BaseException:
    """An exception with these args, whatever its own __init__ takes."""
    base: Any = next(it for it in kind.__mro__ if not it.__flags__ & _HEAP_TYPE)
    error: BaseException = base.__new__(kind, *arguments)
    base.__init__(error, *arguments)
    return error
