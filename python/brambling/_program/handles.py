"""What statements make and take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from brambling._errors import BuildTypeError
from brambling._texts import count

if TYPE_CHECKING:
    from brambling._program.statements import Statements

# Characters of a dataset's name that stand in the names of what is made of it.
STEM_MAX = 64


class Dataset:
    """
    A variable of a program: a value per partition, or per block. Made by a `Program`'s statements; its
    values exist only while the program runs, and afterwards in the result.
    """

    __slots__ = ("_blocks", "_id", "_may_be_none", "_program", "_without_rows", "name", "partitions")

    def __init__(
        self, program: Statements, identity: int, name: str, partitions: int, blocks: int | None, without_rows: str | None = None
    ) -> None:
        self._program = program
        self._id = identity
        self._blocks = blocks
        # Whether it began as None: then an update that gives None has not forgotten its return.
        self._may_be_none = False
        # The load without rows of which it was made, if it was: then it has no value.
        self._without_rows = without_rows
        self.name = name
        self.partitions = partitions

    @property
    def _stem(self) -> str:
        """Its name within the name of what is made of it, cut short: else each name of a chain would hold all names before it."""
        return self.name if len(self.name) <= STEM_MAX else f"{self.name[: STEM_MAX - 1]}…"

    def __repr__(self) -> str:
        held = "" if self._blocks is None else f"{count(self._blocks, 'block')} in "
        of = count(self.partitions, "partition")
        return f"<dataset {self.name}: {held}{of}, of program {self._program.name!r}>"

    def __bool__(self) -> bool:
        raise BuildTypeError(
            f"the value of `{self.name}` is known only while the program runs, so `if`, `while`, `and` and `not` "
            f"cannot test it; write `with p.if_(p.signal(f, {self.name})):` or "
            f"`with p.loop(while_=f, on={self.name}):`"
        )

    def __iter__(self) -> Iterator[Any]:
        self._asked_for_values()

    def __getattr__(self, name: str) -> Any:
        what = f"{type(self).__name__!r} object has no attribute {name!r}"
        if not name.startswith("_") and name not in self.__slots__:
            what = f"a dataset has no {name!r}: {self._where_values_are()}"
        raise AttributeError(what, name=name, obj=self)

    def __format__(self, form: str) -> str:
        return self._asked_for_values() if form else str(self)

    def _where_values_are(self) -> str:
        return (
            f"the values of `{self.name}` exist only while the program runs; use p.map(f, {self.name}), "
            f"or p.keep({self.name}) and take them from the result of p.run()"
        )

    def _asked_for_values(self, *_: Any, **__: Any) -> NoReturn:
        raise BuildTypeError(self._where_values_are())


# What Python and NumPy would compute with: without an answer of our own, np.sum(x) is x itself.
for _name in (
    "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow matmul rmatmul and rand or ror "
    "xor rxor lt le gt ge neg pos abs invert float int round getitem setitem contains len array array_ufunc complex index divmod rdivmod "
    "lshift rlshift rshift rrshift trunc floor ceil"
).split():
    setattr(Dataset, f"__{_name}__", Dataset._asked_for_values)


class Signal:
    """A boolean that a program gives while it runs: what `Program.if_` tests."""

    __slots__ = ("_id", "_program", "name")

    def __init__(self, program: Statements, identity: int, name: str) -> None:
        self._program = program
        self._id = identity
        self.name = name

    def __repr__(self) -> str:
        return f"<signal {self.name} of program {self._program.name!r}>"

    def __bool__(self) -> bool:
        raise BuildTypeError(
            f"signal `{self.name}` is known only while the program runs; write `with p.if_(signal):`"
        )


class Exchange:
    """Pieces on their way: what `Program.scatter` makes and `Program.gather` takes."""

    __slots__ = ("_id", "_program", "name", "partitions")

    def __init__(self, program: Statements, identity: int, name: str, partitions: int) -> None:
        self._program = program
        self._id = identity
        self.name = name
        self.partitions = partitions

    def __repr__(self) -> str:
        return f"<exchange {self.name} to {count(self.partitions, 'partition')}>"
