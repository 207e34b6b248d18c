"""
A program as bytes, for another process with the same package to build and run.

The bytes: what they are, who wrote them and with which packages, the places of arrays, a pickle, the arrays. An array that several statements read is
there once; what is read-only is not copied when the program is built again, but read where the bytes lie.
"""

from __future__ import annotations

import json
import struct
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from brambling import _native, _packages
from brambling._errors import BuildError, VersionMismatch
from brambling._pickled import apart, together
from brambling._program.tape import Tape
from brambling._program.unsendable import refusal

if TYPE_CHECKING:
    from brambling._program.program import Program

_MAGIC = b"BRPY"
_FORMAT = 2
# Major and minor version of Python, bytes of the package's version.
_WRITER = struct.Struct("<BBB")
# Bytes of what says the packages' versions.
_PACKAGES = struct.Struct("<I")
# Bytes of the pickle, and how many arrays there are.
_COUNTS = struct.Struct("<QQ")
# Where an array lies, its bytes, and whether it may be written.
_PLACE = struct.Struct("<QQ?")
# Arrays begin at multiples of it: the largest number that NumPy aligns.
_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Described:
    """A dataset, as its result needs it."""

    id: int
    partitions: int
    blocks: int | None
    kept: bool


@dataclass(frozen=True, slots=True)
class Loaded:
    """A program built again: the native builder, and what its result needs."""

    builder: _native.Builder
    name: str
    seed: int
    datasets: dict[str, Described]


def dumps(program: Program, *, with_rows: bool = True) -> bytes:
    """
    A program as bytes.

    Without rows, the arrays of `Program.load` stay here: whoever runs the program is to be given them, partition by partition. Functions and classes of the script, and of modules that are not installed, go along; those of installed packages are named.

    Raises
    ------
    BuildError
        A function or a value cannot be pickled; the message names it, and what it captured.
    """
    tape = program._builder
    datasets = {
        name: Described(it._id, it.partitions, it._blocks, tape.is_kept(it._id)) for name, it in program._datasets.items()
    }
    try:
        modules = {"numpy"}
        told = tape.told if with_rows else tape.told_elsewhere()
        stream, lent = apart((tape.name, tape.seed, told, datasets, tape.hash()), modules)
    except Exception as error:  # Whatever the parts of users' objects raise.
        raise refusal(tape.told, error) from error
    version = _native.__version__.encode()
    packages = json.dumps(_packages.versions(modules)).encode()
    head = _MAGIC + struct.pack("<H", _FORMAT) + _WRITER.pack(*sys.version_info[:2], len(version)) + version
    head += _PACKAGES.pack(len(packages)) + packages
    # Arrays follow what has a place for each of them.
    end = len(head) + _COUNTS.size + len(lent) * _PLACE.size + len(stream)
    known: dict[tuple[int, int], int] = {}
    places: list[bytes] = []
    arrays: list[bytes | memoryview] = []
    for memory in lent:
        address = np.frombuffer(memory, np.uint8).__array_interface__["data"][0] if memory.nbytes else 0
        place = known.get((address, memory.nbytes))
        if place is None:
            gap = -end % _ALIGNMENT
            place = known[address, memory.nbytes] = end + gap
            arrays += [bytes(gap), memory]
            end = place + memory.nbytes
        places.append(_PLACE.pack(place, memory.nbytes, not memory.readonly))
    return b"".join([head, _COUNTS.pack(len(stream), len(lent)), *places, stream, *arrays])


def loads(data: bytes | bytearray | memoryview) -> Loaded:
    """
    Builds the program again that `dumps` made bytes of. The bytes are read as long as the program lives: leave them alone.

    Unpickling runs code: give it only what a trusted process has sent.

    Raises
    ------
    VersionMismatch
        It was written by another version of the package or of Python, or with other versions of packages that its functions use.
    BuildError
        These are no such bytes, or what the program needs is not installed here.
    """
    memory = memoryview(data).cast("B").toreadonly()
    try:
        packages, stream, buffers = _read(memory)
    except (struct.error, IndexError, ValueError):
        raise BuildError(f"these {memory.nbytes} bytes are not a whole program; send what dumps gave") from None
    try:
        _packages.compare(packages)
        name, seed, told, datasets, built = together(stream, buffers)
        tape = Tape(name, seed)
        tape.tell_again(told)
    except ModuleNotFoundError as error:
        raise BuildError(
            f"the program needs the package `{error.name}`, which is not installed here; install it, in the same version, on "
            "every machine"
        ) from error
    except VersionMismatch:
        raise
    except Exception as error:  # Whatever the parts of users' objects raise.
        raise BuildError(
            f"the program cannot be built again here ({type(error).__name__}: {error}); install the same versions of its "
            "packages on every machine"
        ) from error
    if tape.hash() != built:
        raise BuildError(f"program {name!r} became another one when it was built again; send it once more")
    return Loaded(tape.native, name, seed, datasets)


def _read(memory: memoryview) -> tuple[dict[str, str], memoryview, list[Any]]:
    """The packages' versions, the pickle, and the arrays' memory."""
    if memory[:4] != _MAGIC:
        raise BuildError("these bytes are not a program; send what dumps gave")
    (form,) = struct.unpack_from("<H", memory, 4)
    major, minor, length = _WRITER.unpack_from(memory, 6)
    at = 6 + _WRITER.size
    version = str(_span(memory, at, length), "utf-8")
    own = _native.__version__, *sys.version_info[:2]
    if (form, version, major, minor) != (_FORMAT, *own):
        raise VersionMismatch(
            f"this program was built with brambling {version} on Python {major}.{minor} (format {form}), and here are brambling "
            f"{own[0]} on Python {own[1]}.{own[2]} (format {_FORMAT}); install the same versions of both on every machine"
        )
    at += length
    (length,) = _PACKAGES.unpack_from(memory, at)
    at += _PACKAGES.size
    packages = json.loads(bytes(_span(memory, at, length)))
    if not isinstance(packages, dict):
        raise ValueError("no packages' versions")
    at += length
    size, count = _COUNTS.unpack_from(memory, at)
    at += _COUNTS.size
    # Before a list of so many is made.
    table = _span(memory, at, count * _PLACE.size)
    stream = _span(memory, at + table.nbytes, size)
    # Arrays that were views of the same memory are so again, those that may be written among themselves.
    writable: dict[tuple[int, int], bytearray] = {}
    buffers: list[Any] = []
    for place, nbytes, may_write in _PLACE.iter_unpack(table):
        span = _span(memory, place, nbytes)
        if may_write or not _is_aligned(span):
            buffers.append(writable.setdefault((place, nbytes), bytearray(span)))
        else:
            buffers.append(span)
    return packages, stream, buffers


def _span(memory: memoryview, start: int, nbytes: int) -> memoryview:
    if start + nbytes > memory.nbytes:
        raise IndexError("beyond the end")
    return memory[start : start + nbytes]


def _is_aligned(memory: memoryview) -> bool:
    return not memory.nbytes or np.frombuffer(memory, np.uint8).__array_interface__["data"][0] % _ALIGNMENT == 0
