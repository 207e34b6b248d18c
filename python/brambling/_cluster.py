"""Running programs on a cluster."""

from __future__ import annotations

import json
import os
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from brambling import _native
from brambling._errors import SettingsError

if TYPE_CHECKING:
    from brambling._packages import Loads
    from brambling._program.program import Program

# Those that are open, the last one first in use.
_open: list[Cluster] = []
# Whether this process is a worker, and what it then has loaded.
_is_worker = False
_loads: Loads | None = None


class Cluster:
    """
    A connection to a cluster: while it is open, programs, models and analyses of graphs run there. Made by `connect`.

    A context manager; `close` ends it as well.
    """

    def __init__(
        self, address: str | None, token_file: str | os.PathLike[str] | None, tls: str | os.PathLike[str] | None
    ) -> None:
        if address is not None and not isinstance(address, str):
            raise SettingsError(f'address = {address!r} is not usable; give "HOST:PORT", such as "127.0.0.1:7077"')
        self._native = _native.Cluster(
            address, None if token_file is None else os.fspath(token_file), None if tls is None else os.fspath(tls)
        )
        self.address: str = self._native.address()
        _open.append(self)

    def status(self) -> dict[str, Any]:
        """
        How the cluster fares.

        Returns
        -------
        dict
            `workers`, a list of dicts with `id`, `pid`, `host`, `threads`, `shards`, `memory_bytes`, `idle_share` (0 to 1),
            `silent_s` (seconds since it last told how it fares, as it does four times a second) and `stuck`,
            kernels that it cannot end though their jobs are over, dicts with `job`, `stage` and `seconds`; and
            `jobs`, with `id`, `name`, `state` ("queued", "running", "succeeded" or "failed"), `generation`, `position` (tasks that
            have run) and `failure`; and `deaths`, the last workers that were lost, with `worker`, `host`, `pid`, `kind`
            ("signal 9", "exit code 1", "fenced: silent", "fenced: cut off", "link closed" or "machine cut off"), `cause`, `oom`,
            `memory_bytes`, `stage`, `silent_s` and `at_s`.
        """
        status: dict[str, Any] = json.loads(self._native.status())
        return status

    def close(self) -> None:
        """End the connection: programs run in this process again, or where they ran before it."""
        if self in _open:
            _open.remove(self)
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "" if self in _open else ", closed"
        return f"<cluster at {self.address}{state}>"

    def _run(
        self, program: Program, threads: int | None, weight: int | None, snapshot_every: float | str | None = None
    ) -> _native.Outcome:
        from brambling._program.travel import dumps

        if threads is not None:
            raise SettingsError(
                f"argument: threads = {threads} is of this process, and the program runs on {self!r}, whose workers have "
                "threads of their own; leave it out"
            )
        every = None if snapshot_every is None else str(snapshot_every)
        return self._native.run(program._builder.native, dumps(program, with_rows=False), None if weight is None else int(weight), every)


def connect(
    address: str | None = None,
    *,
    token_file: str | os.PathLike[str] | None = None,
    tls: str | os.PathLike[str] | None = None,
) -> Cluster:
    """
    Run programs, models and analyses of graphs on a cluster from now on: until the connection is closed, or to the end of its `with` block.

    Parameters
    ----------
    address : str, optional
        "HOST:PORT" of the controller; without a port, 7077. By default what the variable BRAMBLING_CONTROLLER says, else the one
        cluster of this account on this machine.
    token_file : path, optional
        The file that the controller wrote. By default the token in BRAMBLING_TOKEN, else the file that BRAMBLING_TOKEN_FILE names, else the
        one on this account.
    tls : path, optional
        The folder with the cluster's certificates, as `brambling certs` makes it, for a cluster that uses TLS. By default the one that
        BRAMBLING_TLS names, else the one that the file with the token names.

    Returns
    -------
    Cluster
        The open connection.

    Raises
    ------
    ClusterError
        There is no controller, it knows another token, or one side uses TLS and the other does not, or with other certificates.

    Examples
    --------
    With a cluster that `brambling cluster --workers 2 --threads 4` has started in another terminal::

        with br.connect("127.0.0.1:7077") as cluster:
            print(len(cluster.status()["workers"]))
            result = p.run()
    """
    return Cluster(address, token_file, tls)


def current() -> Cluster | None:
    """The connection that is in use: the last one, or where BRAMBLING_CONTROLLER says that programs run."""
    if not _open and not _is_worker and os.environ.get("BRAMBLING_CONTROLLER"):
        # Open to the end of the process. Who connects meanwhile uses that.
        connect()
    return _open[-1] if _open else None


def be_worker() -> None:
    """
    What kernels run in this process runs here, whatever its environment says: the cluster waits for it. What they print goes to the clients
    of their jobs.
    """
    from brambling import _packages, _prints

    global _is_worker, _loads
    _is_worker = True
    _prints.install()
    _loads = _packages.Loads()


def loaded() -> list[tuple[str, str]]:
    """What this worker has loaded of packages: the same list as before while nothing has changed."""
    return [] if _loads is None else _loads.told()
