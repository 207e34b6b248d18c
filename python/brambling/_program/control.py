"""Loops and branches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from brambling._block import block
from brambling._errors import BuildError
from brambling._kernel import code_of, name_of
from brambling._program.checks import Truth
from brambling._program.handles import Dataset, Signal
from brambling._program.statements import Statements
from brambling._texts import short


class Control(Statements):
    """Loops and branches: their statements are blocks of Python."""

    @block
    def loop(
        self,
        n: int | None = None,
        *,
        while_: Callable[[Any], Any] | None = None,
        on: Dataset | None = None,
    ) -> Iterator[None]:
        """
        Repeat the statements of the block `n` times, or while `while_(value of on)` holds.

        Parameters
        ----------
        n : int, optional
            How many turns.
        while_ : callable, optional
            Tested before each turn.
        on : Dataset, optional
            What it tests: one partition.

        Examples
        --------
        >>> import brambling as br
        >>> p = br.Program("halving")
        >>> x = p.dataset("x", value=100)
        >>> with p.loop(while_=lambda x: x > 10, on=x):
        ...     p.update(x, lambda x: x // 2)
        >>> p.run()[x]
        6
        """
        self._statement()
        if (n is None) == (while_ is None) or (while_ is None) != (on is None):
            raise BuildError("a loop is p.loop(turns) or p.loop(while_=f, on=dataset)")
        if n is not None:
            if not isinstance(n, int | np.integer) or not 0 <= n < 1 << 64:
                unknown = "; as long as something holds it turns with p.loop(while_=f, on=dataset)" if callable(n) or isinstance(n, Dataset) else ""
                raise BuildError(f"p.loop({short(n)}): give the number of turns, an integer from 0 to 2**64 - 1{unknown}")
            self._builder.begin_repeat(int(n))
        else:
            assert while_ is not None and on is not None
            name = name_of(while_)
            call = self._call(while_, name, (on,), check=Truth(name))
            self._builder.begin_while(name, call, code_of(while_), on._id)
        with self._body("loop"):
            yield

    @block
    def if_(self, signal: Signal) -> Iterator[None]:
        """
        Run the statements of the block when a signal was true.

        Examples
        --------
        >>> import brambling as br
        >>> p = br.Program("sign")
        >>> x = p.dataset("x", value=-3)
        >>> with p.if_(p.signal(lambda x: x < 0, x)):
        ...     p.update(x, lambda x: -x)
        >>> with p.else_():
        ...     p.update(x, lambda x: x + 1)
        >>> p.run()[x]
        3
        """
        self._statement()
        if not isinstance(signal, Signal) or signal._program is not self:
            raise BuildError(f"p.if_ tests a signal of this program, not {short(signal)}; make one with p.signal(f, dataset)")
        branch = self._builder.begin_if(signal._id)
        with self._body("if_"):
            yield
        self._closed_if = branch

    @block
    def else_(self) -> Iterator[None]:
        """Run the statements of the block when the signal of the `if_` just before was false."""
        if self._closed_if is None:
            raise BuildError("p.else_() follows directly after the block of a p.if_(signal)")
        self._builder.begin_else(self._closed_if)
        self._statement()
        with self._body("else_"):
            yield

    @contextmanager
    def _body(self, what: str) -> Iterator[None]:
        self._open.append(what)
        try:
            yield
        finally:
            self._open.pop()
            self._builder.end()
            self._closed_if = None
