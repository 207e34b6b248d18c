"""Which packages an object needs where it goes, and in which versions; and which ones a worker has loaded."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

from brambling._by_value import goes_along, is_of_the_interpreter
from brambling._errors import VersionMismatch

_MISSING = "not installed"


def versions(modules: Iterable[str]) -> dict[str, str]:
    """
    The versions of the packages that modules belong to, and digests of the modules of those that have none: of what others have to import.
    """
    found = {}
    for name in sorted(modules):
        package = name.partition(".")[0]
        if not _is_outside(name) or goes_along(name):
            continue
        version = _version(package)
        if version is not None:
            found[package] = version
        elif (digest := _digest(sys.modules.get(name))) is not None:
            found[name] = digest
    return found


def compare(theirs: Mapping[str, str]) -> None:
    """
    Say which package is here in another version.

    Raises
    ------
    VersionMismatch
        The first of them, with both versions.
    ModuleNotFoundError
        One is not here at all.
    """
    for package, version in theirs.items():
        module = importlib.import_module(package)
        own = _version(package) or _digest(module)
        if own != version:
            raise VersionMismatch(
                f"the program was built with {package} {version}, and here is {package} {own}; install the same version on every "
                "machine"
            )


def _version(package: str) -> str | None:
    # Not by getattr: some packages compute it when they are asked, and warn.
    told = vars(module).get("__version__") if (module := sys.modules.get(package)) is not None else None
    if isinstance(told, str):
        return told
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


class Loads:
    """
    What a worker has loaded beside the standard library: for packages that have a version that version, for every other module a digest of
    its source; and what was looked for and is not installed, for which packages often have another way that computes other bits.
    """

    def __init__(self) -> None:
        # What was there before any program: tools of the machine, often without a version, which no kernel has asked for.
        self._seen = {name for name in sys.modules if not _is_outside(name) or _version(name.partition(".")[0]) is None}
        self._known: dict[str, str] = {}
        # Packages of which the version tells all.
        self._versioned: set[str] = set()
        self._missing: set[str] = set()
        self._at = 0, 0
        self._told: list[tuple[str, str]] = []
        sys.meta_path.append(self)

    def find_spec(self, name: str, *_: Any) -> None:
        """Asked for modules that no finder before it has found."""
        if "." not in name and _is_outside(name):
            self._missing.add(name)

    def told(self) -> list[tuple[str, str]]:
        """Each name, and what it is in: the same list as before while nothing has changed."""
        at = len(sys.modules), len(self._missing)
        if at != self._at:
            self._at = at
            for name, module in list(sys.modules.items()):
                if name not in self._seen:
                    self._add(name, module)
            missing = dict.fromkeys(self._missing - self._seen, _MISSING)
            self._told = sorted((missing | self._known).items())
        return self._told

    def _add(self, name: str, module: Any) -> None:
        package = name.partition(".")[0]
        if _is_outside(name) and package not in self._versioned:
            if any(_is_being_loaded(sys.modules.get(it)) for it in (name, package)):
                # Another thread does, and it has no version yet.
                self._at = 0, 0
                return
            version = _version(package)
            if version is not None:
                self._known[package] = version
                self._versioned.add(package)
            elif (digest := _digest(module)) is not None:
                self._known[name] = digest
        self._seen.add(name)


def _is_being_loaded(module: Any) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _is_outside(name: str) -> bool:
    """Whether a module is neither the interpreter's nor ours."""
    package = name.partition(".")[0]
    return package not in sys.stdlib_module_names and package not in {"brambling", "__main__", "__mp_main__"}


def _digest(module: ModuleType | None) -> str | None:
    """Of what the module was read from; None for what was made in memory, and for what comes with the interpreter."""
    # Here, because it would take a third of the time of `import brambling`.
    import hashlib

    spec: Any = getattr(module, "__spec__", None)
    source = spec.origin if spec is not None and spec.has_location else None
    if source is None or is_of_the_interpreter(source):
        return None
    try:
        data = spec.loader.get_data(source)
    except (AttributeError, OSError):
        return None
    # Before the code there is when it was written.
    data = data[16:] if source.endswith(".pyc") else data
    return f"source {hashlib.sha256(data).hexdigest()[:12]}"
