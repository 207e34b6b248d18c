"""Blocks of statements: what `with p.loop(...)` enters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from brambling._errors import BuildTypeError

if TYPE_CHECKING:
    from brambling._program.statements import Statements

P = ParamSpec("P")
S = TypeVar("S", bound="Statements")


class Block(AbstractContextManager[None]):
    """A block that its program misses until a `with` enters it."""

    def __init__(self, inner: AbstractContextManager[None], what: str, unentered: dict[int, Block]) -> None:
        self.what = what
        self._inner = inner
        self._unentered = unentered
        unentered[id(self)] = self

    def __enter__(self) -> None:
        self._unentered.pop(id(self), None)
        return self._inner.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        return self._inner.__exit__(*error)

    def __iter__(self) -> Iterator[Any]:
        raise BuildTypeError(f"p.{self.what} is no iterator; write `with p.{self.what}(...):`, and use ctx.turn in kernels")


def block(
    statements: Callable[Concatenate[S, P], Iterator[None]],
) -> Callable[Concatenate[S, P], AbstractContextManager[None]]:
    """A method of `Program` that yields where its block's statements stand."""
    opened = contextmanager(statements)

    @wraps(statements)
    def made(self: S, /, *args: P.args, **how: P.kwargs) -> AbstractContextManager[None]:
        return Block(opened(self, *args, **how), statements.__name__, self._unentered)

    return made
