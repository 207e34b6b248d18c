"""Packages of PyPI that a check needs and Brambling does not: an environment of their own, in build/claims-venv."""

import os
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path

HOME = Path(__file__).resolve().parents[2] / "build/claims-venv"


def needs(module, package):
    """Goes on in that environment where a module is not to be had here; what is missing there is installed."""
    if find_spec(module) is not None:
        return
    python = HOME / "bin/python"
    if not python.exists():
        venv.create(HOME, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", package], check=True, stdout=sys.stderr)
    if Path(sys.prefix) == HOME:
        sys.exit(f"{package} was installed, but has no {module}")
    os.execv(python, [str(python), *sys.argv])
