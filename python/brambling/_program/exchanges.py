"""Statements that move values between partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from brambling import _native
from brambling._errors import BuildError, BuildTypeError
from brambling._kernel import code_of, name_of
from brambling._program.checks import Pieces
from brambling._program.handles import Dataset, Exchange
from brambling._program.neighbours import ToNeighbours, check_send, from_neighbours, offsets_of
from brambling._program.statements import Statements, ids
from brambling._shuffle import Split, check_key, join
from brambling._texts import short


def _joined(pieces: dict[int, Any]) -> Any:
    return join(list(pieces.values()))


class Exchanges(Statements):
    """Shuffles, exchanges with neighbours, scatters and gathers."""

    def shuffle(self, dataset: Dataset, key: Any, partitions: int | None = None) -> Dataset:
        """
        Bring all rows of a key into one partition, in the order of their sources.

        Of a dataset loaded from one array a partition gets an array of its rows, of one loaded from several a tuple of arrays, and of
        lists a list; without rows they are empty, and of the same types.

        Parameters
        ----------
        dataset : Dataset
            Rows, as a list, tuple or array per partition or block.
        key : callable or int or str
            A function of a row, or what a row is indexed by: a column.
        partitions : int, optional
            By default as many as the dataset has.

        Examples
        --------
        >>> import brambling as br
        >>> p = br.Program("by length")
        >>> words = p.dataset("words", value=["to", "be", "or", "not"])
        >>> by_length = p.shuffle(words, key=len, partitions=2)
        >>> p.keep(by_length)
        >>> sorted(sum(p.run()[by_length], []))
        ['be', 'not', 'or', 'to']
        """
        self._own(dataset, "p.shuffle")
        name = self._fresh(f"{dataset._stem} by key")
        partitions = dataset.partitions if partitions is None else self._partitions(name, partitions)
        check_key(key)
        split = Split(key, partitions, dataset.name, dataset._blocks is not None, self._holders(dataset))
        stage = f"shuffle {dataset._stem}"
        sending = self._call(split, stage, (dataset,))
        receiving = self._call(_joined, stage, (), own_inputs=1)
        self._statement()
        code = code_of((key, partitions))
        exchange = self._builder.scatter(stage, sending, code, [dataset._id], None)
        made = self._builder.gather(exchange, stage, name, receiving, code, [], partitions)
        self._builder.mark_hashed(made)
        return self._made(made, name, None)

    def _holders(self, dataset: Dataset) -> list[int]:
        """The partitions that hold anything, of blocked datasets those that have blocks."""
        everybody = range(dataset.partitions)
        if not dataset._blocks:
            return list(everybody)
        blocks = (_native.blocks_of_partition(it, dataset.partitions, dataset._blocks) for it in everybody)
        return [it for it, (first, last) in zip(everybody, blocks, strict=True) if first < last]

    def exchange(
        self,
        dataset: Dataset,
        neighbours: Sequence[int],
        *,
        wrap: bool = False,
        send: Callable[[Any, int], Any] | None = None,
    ) -> Dataset:
        """
        Give every partition what its neighbours hold.

        Parameters
        ----------
        dataset : Dataset
            What is sent.
        neighbours : sequence of int
            Offsets of the partitions to hear from, such as ``(-1, 1)``.
        wrap : bool, default False
            Whether the first and the last partition are neighbours.
        send : callable, optional
            ``send(value, offset)`` gives what goes to the neighbour at that offset; by default the value.

        Returns
        -------
        Dataset
            Per partition a dict from offset to what came from there; without the ends' missing neighbours.

        Examples
        --------
        >>> import brambling as br
        >>> p = br.Program("neighbours")
        >>> x = p.dataset("x", value=0, partitions=3)
        >>> p.update(x, lambda x, ctx: 10 * ctx.partition)
        >>> halo = p.exchange(x, neighbours=(-1, 1))
        >>> p.keep(halo)
        >>> p.run()[halo]
        [{1: 10}, {-1: 0, 1: 20}, {-1: 10}]
        """
        self._own(dataset, "p.exchange")
        offsets = offsets_of(neighbours)
        check_send(send, wrap)
        stage = f"exchange {dataset._stem}"
        name = self._fresh(f"neighbours of {dataset._stem}")
        sending = self._call(ToNeighbours(offsets, wrap, send), stage, (dataset,))
        receiving = self._call(from_neighbours, stage, (), own_inputs=1)
        self._statement()
        code = code_of(send)
        relation = (sorted(-offset for offset in offsets), wrap)
        exchange = self._builder.scatter(stage, sending, code, [dataset._id], relation)
        made = self._builder.gather(exchange, stage, name, receiving, code, [], dataset.partitions)
        return self._made(made, name, None)

    def scatter(
        self, f: Callable[..., Mapping[int, Any]], *args: Dataset, to: Dataset | int
    ) -> Exchange:
        """
        Send pieces to any partition: `f` returns a mapping from destination to piece. `gather` receives them.

        Examples
        --------
        >>> import brambling as br
        >>> p = br.Program("transpose")
        >>> x = p.dataset("x", value=0, partitions=2)
        >>> pieces = p.scatter(lambda x, ctx: {to: (ctx.partition, to) for to in range(3)}, x, to=3)
        >>> columns = p.gather(lambda pieces: list(pieces.values()), pieces)
        >>> p.keep(columns)
        >>> p.run()[columns]
        [[(0, 0), (1, 0)], [(0, 1), (1, 1)], [(0, 2), (1, 2)]]
        """
        name = name_of(f)
        if not args:
            raise BuildError(f"`{name}` reads no dataset; p.scatter(f, dataset, ..., to=...) sends from its partitions")
        partitions = to.partitions if isinstance(to, Dataset) else self._partitions(name, to, "to")
        call = self._call(f, name, args, check=Pieces(name, partitions))
        self._statement()
        exchange = self._builder.scatter(name, call, code_of(f), ids(args), None)
        return Exchange(self, exchange, name, partitions)

    def gather(self, f: Callable[..., Any], pieces: Exchange, *args: Dataset) -> Dataset:
        """Receive a scatter's pieces: `f` gets the mapping from source to piece, in order of sources."""
        if isinstance(f, Exchange):
            raise BuildTypeError("p.gather(f, pieces, ...): the function comes first, then what it gathers")
        name = name_of(f)
        if not isinstance(pieces, Exchange) or pieces._program is not self:
            raise BuildError(f"`{name}` gathers {short(pieces)}; give what p.scatter of this program returned")
        call = self._call(f, name, args, own_inputs=1)
        result = self._fresh(name)
        self._statement()
        made = self._builder.gather(
            pieces._id, name, result, call, code_of(f), ids(args), pieces.partitions
        )
        return self._made(made, result, None)
