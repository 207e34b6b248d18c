"""A program: all statements, and running it."""

from __future__ import annotations

import os

import numpy as np

from brambling import _cluster, _log
from brambling._blas import one_blas_thread
from brambling._errors import BuildError, ClusterError, SettingsError
from brambling._program.control import Control
from brambling._program.data import Data
from brambling._program.exchanges import Exchanges
from brambling._program.reductions import Reductions
from brambling._program.result import Result
from brambling._program.stages import Stages
from brambling._texts import count, short


class Program(Data, Stages, Reductions, Exchanges, Control):
    """
    A driver program: a sequential program over datasets, built by ordinary code, then run.

    Parameters
    ----------
    name : str
        What the program is called in texts and errors.
    seed : int, default 0
        Seed of the random numbers of `Context.rng`, from 0 to 2**64 - 1.

    Examples
    --------
    Newton's method for the square root of 2, from four starts:

    >>> import brambling as br
    >>> p = br.Program("square roots")
    >>> x = p.dataset("x", value=1.0, partitions=4)
    >>> p.update(x, lambda x, ctx: x + ctx.partition)
    >>> with p.loop(20):
    ...     p.update(x, lambda x: (x + 2 / x) / 2)
    >>> [round(x, 6) for x in p.run()[x]]
    [1.414214, 1.414214, 1.414214, 1.414214]
    """

    def __repr__(self) -> str:
        return f"<program {self.name!r}: {count(len(self._datasets), 'dataset')}>"

    def __str__(self) -> str:
        return self._builder.text()

    def picture(self) -> str:
        """The program as a Mermaid flowchart."""
        return self._builder.picture()

    def run(
        self,
        *,
        threads: int | None = None,
        weight: int | None = None,
        store: str | os.PathLike[str] | None = None,
        snapshot_every: float | str | None = None,
    ) -> Result:
        """
        Run the program on the threads of this process, or on the cluster that `connect` has named.

        Python functions run on the calling thread, one at a time; what is built in runs on all threads.

        Parameters
        ----------
        threads : int, optional
            By default BRAMBLING_THREADS, the settings file, or the CPUs of this process. Not on a cluster.
        weight : int, optional
            The job's share of the threads while others run on them: one of weight 2 gets twice as much as one of weight 1. By default
            BRAMBLING_WEIGHT, the settings file, or 1.
        store : str or path, optional
            A directory, or "s3://BUCKET/PREFIX", in which snapshots of the run, and its results, are kept: a script that is killed and
            started again with the same command goes on from its last snapshot. They go when the script has reached its end. By default BRAMBLING_STORE, the settings
            file, or none. Not on a cluster.
        snapshot_every : float or str, optional
            How often the run is saved: seconds, a time such as "500ms" or "2min", a number of turns of its loop such as "20 turns", or
            "off". By default BRAMBLING_SNAPSHOT_EVERY, the settings file, or 10 s; on a cluster as its controller has it.

        Returns
        -------
        Result
            The datasets made by `dataset`, and those that `keep` named.

        Raises
        ------
        BuildError
            The program is incomplete.
        KernelError
            A kernel raised; its exception is the cause.
        KeyboardInterrupt
            On Ctrl-C, at most 0.1 s after the kernels that were running.
        ClusterError
            On a cluster: what became of it, or how the program failed there.
        StoreError
            Nothing can be kept in the store, or read there.
        """
        if self._open:
            raise BuildError(f"p.run() inside the block of p.{self._open[-1]}(); run the program after it")
        if self._unentered:
            what = next(iter(self._unentered.values())).what
            raise BuildError(
                f"there is a p.{what}(...) without its block, which changes nothing; "
                f"write `with p.{what}(...):` and indent the statements that belong to it"
            )
        for name, given, most in (("threads", threads, 1024), ("weight", weight, 1000)):
            if given is not None and (not isinstance(given, int | np.integer) or isinstance(given, bool)):
                raise SettingsError(f"argument: {name} = {short(given)} is not usable: give an integer from 1 to {most}")
        if threads is not None and (not isinstance(threads, int | np.integer) or not 1 <= threads <= 1024):
            raise SettingsError(f'argument: threads = "{threads}" is not usable: give a number from 1 to 1024')
        if weight is not None and (not isinstance(weight, int | np.integer) or not 1 <= weight <= 1000):
            raise SettingsError(
                f'argument: weight = "{weight}" is not usable: give a number from 1 to 1000; a job of weight 2 gets twice the time of '
                "one of weight 1"
            )
        cluster = _cluster.current()
        _log.began(self.name, self._builder.text, threads)
        if cluster is not None:
            if store is not None:
                raise ClusterError(
                    "store says where a run of this process is kept; on a cluster leave it out: its controller has a store of its own (--store)"
                )
            outcome = cluster._run(self, threads, weight, snapshot_every)
        else:
            with one_blas_thread():
                outcome = self._builder.run(
                    None if threads is None else int(threads),
                    None if weight is None else int(weight),
                    None if store is None else os.fspath(store),
                    None if snapshot_every is None else str(snapshot_every),
                )
        kept = {name: it for name, it in self._datasets.items() if self._builder.is_kept(it._id)}
        return Result(outcome, self, kept)
