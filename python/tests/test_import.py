"""What `import brambling` brings along, and what waits until it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import brambling as br


def modules_after(statement: str) -> set[str]:
    """The modules of a fresh interpreter after a statement."""
    shown = subprocess.run([sys.executable, "-c", f"{statement}; import sys; print(*sys.modules)"],
                           check=True, capture_output=True, text=True, timeout=60)
    return set(shown.stdout.split())


@pytest.mark.parametrize("name", ["graph", "kernels", "ml"])
def test_a_part_is_imported_when_it_is_first_used(name: str) -> None:
    part = f"brambling.{name}"
    assert part not in modules_after("import brambling")
    assert part in modules_after(f"import brambling as br; br.{name}.__name__")
    assert part in modules_after(f"from brambling import {name}")


def test_every_part_is_listed_and_no_other_is_made_up() -> None:
    assert set(br.__all__) <= set(dir(br))
    assert all(getattr(br, name) is not None for name in br.__all__)
    with pytest.raises(AttributeError, match="'brambling' has no attribute 'linear'"):
        br.linear  # noqa: B018


def test_nothing_heavy_comes_along() -> None:
    brought = {name.partition(".")[0] for name in modules_after("import brambling")}
    assert not brought & {"cloudpickle", "sklearn", "scipy", "pandas", "pyarrow", "polars", "nanoarrow", "numba", "matplotlib"}
