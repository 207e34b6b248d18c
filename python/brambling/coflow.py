"""
Coflows, the flows of one exchange, under policies that say which goes first: a simulation.

Examples
--------
>>> import brambling as br
>>> found = br.coflow.simulate(generate=20, policy="fair,receiver-driven")
>>> found["receiver-driven"].average_s < found["fair"].average_s
True
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from brambling import _native
from brambling._errors import BuildError, BuildTypeError

__all__ = ["CoflowAverages", "CoflowOutcome", "simulate"]

# As the command says it: invalid value 'x' for '--queues <N>': why
_INVALID = re.compile(r"invalid value '(?P<value>.*?)' for '--(?P<name>[a-z-]+) <.*?>'(?P<why>.*)", re.DOTALL)
# How the command is called, and where its help is.
_BEHIND = re.compile(r"\n\n(Usage|For more information).*", re.DOTALL)


@dataclass(frozen=True)
class CoflowAverages:
    """
    Averages of some coflows.

    Attributes
    ----------
    coflows : int
        Of how many.
    average_s : float
        The mean of their times, in seconds.
    slowdown : float
        How many times as long as alone, on average.
    """

    coflows: int
    average_s: float
    slowdown: float


@dataclass(frozen=True)
class CoflowOutcome:
    """
    What a policy has come to.

    Attributes
    ----------
    average_s, p50_s, p95_s : float
        The mean of coflows' times in seconds, their median, and what 95 % of them keep within.
    slowdown : float
        How many times as long as alone, on average.
    category : dict of str to CoflowAverages
        By size, "I" to "V": up to 100 MB, 1 GB, 10 GB, 100 GB, and more.
    bin : dict of str to CoflowAverages
        "short-narrow", "short-wide", "long-narrow" and "long-wide": a short one has no flow above 5 MB, a narrow one at
        most 50 flows.
    messages : int
        What the policy's hosts had to tell each other.
    coflow : ndarray of uint64
        Each coflow's name, in the order of arrival.
    arrival_s, cct_s, isolated_s, bytes : ndarray of float64
        When it came, how long it took, how long it takes alone, and how large it is.
    """

    average_s: float
    p50_s: float
    p95_s: float
    slowdown: float
    category: dict[str, CoflowAverages]
    bin: dict[str, CoflowAverages]
    messages: int
    coflow: np.ndarray
    arrival_s: np.ndarray
    cct_s: np.ndarray
    isolated_s: np.ndarray
    bytes: np.ndarray


def simulate(
    trace: str | os.PathLike[str] | None = None,
    *,
    generate: int | None = None,
    policy: str | Sequence[str] = "all",
    fabric: str = "big-switch",
    gbps: float = 1.0,
    queues: int | None = None,
    threshold: str | float = "10MB",
    factor: float = 10.0,
    rule: Literal["recommended", "fixed", "current"] = "recommended",
    alpha: float = 0.0,
    beta: float = 1.0,
    starvation: str | float | None = None,
    wfq: bool = False,
    relay: Literal["perfect", "rtt", "none"] = "perfect",
    rtt: str | float = "100us",
    sizes: Literal["known", "unknown"] = "known",
    order: Literal["rank", "class"] = "rank",
    sizes_off: float = 0.0,
    silent: float = 0.0,
    waves: int = 1,
    burst: bool = False,
    dag: Literal["tpcds42", "tao"] | None = None,
    load: float = 1.0,
    resolution: str | float = "10ms",
    seed: int = 1,
) -> dict[str, CoflowOutcome]:
    """
    Say how long coflows take under each policy, on links that they share.

    Nothing moves: flows are fluid, and each gets its share of its links until something happens.

    Parameters
    ----------
    trace : str or path, optional
        A file of coflows: ``PORTS COFLOWS``, and then a coflow a line, ``NAME ARRIVAL_MS MAPPERS PORT... REDUCERS
        PORT:MB...``.
    generate : int, optional
        In place of a trace, so many coflows whose sizes have heavy tails.
    policy : str or sequence of str
        "fair", "fifo", "baraat", "aalo", "stream", "varys", "receiver-driven" (or "ours"), several of them, or "all".
    fabric : str
        "big-switch", or "fattree:K" with K pods.
    gbps : float
        Gigabits that a link carries in a second.
    queues : int, optional
        Queues of aalo, stream and receiver-driven; unless told 10 for aalo and 8 for the others.
    threshold : str or float
        Where the first queue of aalo and stream ends, such as "10MB", or a number of bytes.
    factor : float
        How many times as far each next one does.
    rule : str
        How stream reads the paper's equation 2.
    alpha : float
        How much later stream demotes a coflow most of whose flows are done: by up to such a share.
    beta : float
        How much what other receivers have counts to stream's.
    starvation : str or float, optional
        After how long without a byte stream lifts a coflow by a class; never unless told.
    wfq : bool
        Stream's classes share links by weights, in place of one after the other.
    relay : str
        How receivers of a coflow hear of each other: at once, a round trip later, or never.
    rtt : str or float
        How long a packet and its answer take, such as "100us", or a number of seconds.
    sizes : str
        Whether receiver-driven knows sizes.
    order : str
        By what receiver-driven orders coflows: by exact rank, or by the network's classes alone.
    sizes_off : float
        By up to which share announced sizes are off.
    silent : float
        Which share of hosts announces nothing.
    waves : int
        In how many waves a coflow comes, 1 to 4.
    burst : bool
        All coflows come at once.
    dag : str, optional
        Each coflow becomes a graph of exchanges.
    load : float
        How many times as fast coflows come.
    resolution : str or float
        On a fat tree, how far apart the moments are at which rates are looked at.
    seed : int
        Of what is made, and of where ports and paths of a fat tree are.

    Returns
    -------
    dict of str to CoflowOutcome
        By the policy's name.

    Raises
    ------
    BuildError
        A file that is no trace, a policy that does not exist, a number beyond what makes sense.

    Examples
    --------
    250 MB and 125 MB into one port of 1 Gbit/s:

    >>> import pathlib, tempfile
    >>> import brambling as br
    >>> trace = pathlib.Path(tempfile.mkdtemp(), "trace")
    >>> _ = trace.write_text("3 2\\n1 0 1 0 1 2:250\\n2 0 1 1 1 2:125\\n")
    >>> found = br.coflow.simulate(trace, policy=["fair", "varys"])
    >>> found["fair"].cct_s
    array([3., 2.])
    >>> found["varys"].cct_s
    array([3., 1.])

    Notes
    -----
    The policies are those of Chowdhury and Stoica's Varys and Aalo (SIGCOMM 2014 and 2015), Dogar and others' Baraat (SIGCOMM
    2014), Susanto, Jin and Chen's Stream (ICNP 2016), and ours.
    """
    if (trace is None) == (generate is None):
        raise BuildError("give either a trace, or generate with a number of coflows")
    given = {
        "trace": None if trace is None else _path(trace),
        "generate": generate,
        "policy": _policies(policy),
        "fabric": fabric,
        "gbps": gbps,
        "queues": queues,
        "threshold": _with_unit("threshold", threshold, "B"),
        "factor": factor,
        "rule": rule,
        "alpha": alpha,
        "beta": beta,
        "starvation": None if starvation is None else _with_unit("starvation", starvation, "s"),
        "relay": relay,
        "rtt": _with_unit("rtt", rtt, "s"),
        "sizes": sizes,
        "order": order,
        "sizes_off": sizes_off,
        "silent": silent,
        "waves": waves,
        "dag": dag,
        "load": load,
        "resolution": _with_unit("resolution", resolution, "s"),
        "seed": seed,
    }
    words = [
        f"--{name.replace('_', '-')}={_word(name, value)}" for name, value in given.items() if value is not None
    ]
    try:
        flags = ["--burst"] * bool(burst) + ["--wfq"] * bool(wfq)
        found = _native.coflow_simulate(words + flags)
    except BuildError as error:
        raise BuildError(_as_argument(str(error))) from None
    return {
        name: _outcome(summary, coflow, [arrival, cct, alone, sizes])
        for name, summary, coflow, arrival, cct, alone, sizes in found
    }


def _word(name: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float | np.number):
        raise BuildTypeError(f"{name} is {value!r}; give text or a number")
    return str(value)


def _with_unit(name: str, given: object, unit: str) -> str:
    word = _word(name, given)
    return word if isinstance(given, str) else word + unit


def _path(trace: object) -> str:
    try:
        return os.fsdecode(trace)  # type: ignore[arg-type]
    except TypeError:
        raise BuildTypeError(f"trace is {trace!r}; give the path of a file") from None


def _policies(given: object) -> str:
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, Sequence) or not all(isinstance(it, str) for it in names):
        raise BuildTypeError(f'policy is {given!r}; give a name such as "stream", a list of names, or "all"')
    return ",".join(names)


def _as_argument(text: str) -> str:
    """What the command says of an option, as it is said of an argument."""
    text = _BEHIND.sub("", text.removeprefix("error: ")).strip()
    if match := _INVALID.match(text):
        name, why = match["name"].replace("-", "_"), " ".join(match["why"].removeprefix(":").split())
        text = f"{name} = {match['value']}: {why}"
    return text


def _outcome(summary: str, coflow: list[int], times: list[list[float]]) -> CoflowOutcome:
    found: dict[str, Any] = json.loads(summary)
    for part in ("category", "bin"):
        found[part] = {name: CoflowAverages(**it) for name, it in found[part].items()}
    arrival_s, cct_s, isolated_s, sizes = (np.array(it) for it in times)
    return CoflowOutcome(
        **found,
        coflow=np.array(coflow, dtype=np.uint64),
        arrival_s=arrival_s,
        cct_s=cct_s,
        isolated_s=isolated_s,
        bytes=sizes,
    )
