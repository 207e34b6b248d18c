"""Which packages an object needs where it goes, and in which versions."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from collections.abc import Iterable, Mapping

from brambling._errors import VersionMismatch


def versions(modules: Iterable[str]) -> dict[str, str]:
    """The versions of the packages that modules belong to: of those that are installed, and have one."""
    packages = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names - {"__main__", "brambling"}
    found = {package: _version(package) for package in sorted(packages)}
    return {package: version for package, version in found.items() if version is not None}


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
        importlib.import_module(package)
        own = _version(package)
        if own != version:
            raise VersionMismatch(
                f"the program was built with {package} {version}, and here is {package} {own}; install the same version on every "
                "machine"
            )


def _version(package: str) -> str | None:
    told = getattr(sys.modules.get(package), "__version__", None)
    if isinstance(told, str):
        return told
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
