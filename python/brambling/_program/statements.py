"""What all statements share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from brambling._block import Block
from brambling._errors import BuildError, BuildTypeError
from brambling._kernel import Call
from brambling._outer import OuterNames
from brambling._program.handles import Dataset, Exchange, Signal
from brambling._program.tape import Tape
from brambling._texts import count, short


class Statements:
    """A program being built. The statements themselves are in the classes derived from this one."""

    def __init__(self, name: str, seed: int = 0) -> None:
        if not isinstance(name, str):
            raise BuildTypeError(f"a program's name is a string, not {short(name)}; give one, as in br.Program('training')")
        if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or not 0 <= seed < 1 << 64:
            raise BuildError(f"seed = {seed!r} is not usable; give an integer from 0 to 2**64 - 1")
        self.name = name
        self._seed = int(seed)
        self._builder = Tape(name, self._seed)
        self._datasets: dict[str, Dataset] = {}
        # By name, the number that one more dataset of this name may get.
        self._numbers: dict[str, int] = {}
        self._open: list[str] = []
        self._unentered: dict[int, Block] = {}
        self._outer = OuterNames()
        self._closed_if: int | None = None

    def _statement(self) -> None:
        self._closed_if = None

    def _made(self, identity: int, name: str, blocks: int | None, without_rows: str | None = None) -> Dataset:
        dataset = Dataset(self, identity, name, self._builder.partitions(identity), blocks, without_rows)
        self._datasets[name] = dataset
        return dataset

    def _new_name(self, name: Any) -> None:
        if not isinstance(name, str) or not name:
            raise BuildError(
                f"a dataset's name is a string, not {short(name)}; give one, as in p.dataset('weights', value=...) or p.load(X, name='rows')"
            )
        if name in self._datasets:
            raise BuildError(f"there is a dataset `{name}` already; give this one another name")

    def _fresh(self, name: str) -> str:
        if name not in self._datasets:
            return name
        # Names are never given back, so those before the last that was given are taken.
        number = self._numbers.get(name, 2)
        while f"{name} {number}" in self._datasets:
            number += 1
        self._numbers[name] = number
        return f"{name} {number}"

    def _partitions(self, name: str, partitions: Any, called: str = "partitions") -> int:
        if not isinstance(partitions, int | np.integer) or isinstance(partitions, bool):
            raise BuildTypeError(f"`{name}`: {called} = {short(partitions)} is not usable; give a positive integer")
        if partitions == 0:
            what = f"dataset `{name}` has" if called == "partitions" else f"`{name}` sends to"
            raise BuildError(f"{what} zero partitions; give it at least 1")
        if not 0 < partitions <= 1 << 24:
            raise BuildError(f"`{name}`: {called} = {partitions} is not usable; give a number from 1 to 16777216")
        return int(partitions)

    def _own(self, dataset: Any, who: str) -> Dataset:
        if not isinstance(dataset, Dataset):
            raise BuildTypeError(f"{who} uses {type(dataset).__name__} {short(dataset)}, which is not a dataset; {self._instead_of(dataset)}")
        if dataset._program is not self:
            raise BuildError(
                f"{who} uses `{dataset.name}` of program {dataset._program.name!r}; "
                "datasets belong to the program that made them: make one here, and give it the other's result as its value"
            )
        return dataset

    def _instead_of(self, given: Any) -> str:
        """What to give for something that is not a dataset."""
        if isinstance(given, str) and given in self._datasets:
            return f"give the dataset `{given}` itself, which the statement that made it returned"
        if isinstance(given, list | tuple) and given and all(isinstance(it, Dataset) for it in given):
            return "give each dataset as an argument of its own"
        if isinstance(given, Exchange):
            return "receive its pieces first, with p.gather(f, exchange)"
        if isinstance(given, Signal):
            return "test it with p.if_(signal)"
        return "make it one with p.dataset(name, value=...) or p.load(array), or bind it with functools.partial"

    def _call(
        self, f: Callable[..., Any], stage: str, args: Sequence[Any], **how: Any
    ) -> Call:
        reads = [self._own(arg, f"`{stage}`") for arg in args]
        self._outer.note(f, stage)
        return Call(f, stage=stage, reads=reads, seed=self._seed, **how)

    def _same_blocks(self, stage: str, args: Sequence[Any]) -> int | None:
        for arg in args:
            self._own(arg, f"`{stage}`")
        blocked = [arg for arg in args if arg._blocks is not None]
        for other in blocked[1:]:
            if other._blocks != blocked[0]._blocks:
                raise BuildError(
                    f"stage `{stage}` uses `{blocked[0].name}` ({count(blocked[0]._blocks, 'block')}) and "
                    f"`{other.name}` ({count(other._blocks, 'block')}) together, but their rows differ; "
                    "load arrays of equally many rows in one p.load(...)"
                )
        return blocked[0]._blocks if blocked else None


def function_first(f: Any, form: str) -> None:
    if isinstance(f, Dataset):
        raise BuildTypeError(f"{form}: the function comes first, then what it reads")


def ids(args: Sequence[Dataset]) -> tuple[int, ...]:
    return tuple([arg._id for arg in args])
