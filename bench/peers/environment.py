"""An environment for the peers: build/peers-venv, from requirements.txt, with this checkout's Brambling."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "peers"
VENV = ROOT / "build" / "peers-venv"
REQUIREMENTS = Path(__file__).resolve().parent / "requirements.txt"

Say = Callable[[str], None]


class Unusable(Exception):
    """There is no environment to run anything in."""


class Environment:
    """
    A virtual environment in which what is listed is installed, or known not to be installable.

    Parameters
    ----------
    venv : Path
        Where it is, or is made.
    requirements : Path
        One `name==version` a line.
    folder : Path
        Where data is kept, and what a run needs while it lasts.
    run : callable
        Runs a command, and returns its exit status and what it printed.
    """

    def __init__(
        self,
        venv: Path = VENV,
        requirements: Path = REQUIREMENTS,
        folder: Path = BUILD,
        run: Callable[[list[str]], tuple[int, str]] | None = None,
    ) -> None:
        self.python = venv / "bin" / "python"
        self.folder = folder
        self._venv = venv
        self._requirements = requirements
        self._stamp = venv / "peers.json"
        self._run = run or _run

    def missing(self) -> dict[str, str]:
        """Names that could not be installed, each with the reason."""
        return dict(self._known().get("missing", {}))

    def make(self, say: Say) -> None:
        """Make it, or complete it. What cannot be installed is noted and tried again the next time."""
        self._refuse_unbuilt()
        known = self._known()
        if known.get("made_of") != self._made_of():
            say(f"making an environment for the peers in {self._venv}; the first time takes minutes")
            self._check([sys.executable, "-m", "venv", "--clear", str(self._venv)], "cannot be made")
            known = {"missing": {name: "not tried yet" for name in self._lines()}}
        if known["missing"]:
            missing = self._install()
            for name, reason in missing.items():
                say(f"{name} cannot be installed: {reason}")
            if "numpy" in missing:
                raise Unusable(f"{self._venv} has no numpy ({missing['numpy']}); nothing can be compared without it")
            self._link_checkout()
            self._stamp.write_text(json.dumps({"made_of": self._made_of(), "missing": missing}))

    def enter(self, arguments: list[str]) -> None:
        """Go on in it, as the same process."""
        os.execv(self.python, [str(self.python), str(Path(__file__).resolve().parent), *arguments])

    def is_entered(self) -> bool:
        """Whether this process already runs in it."""
        return Path(sys.prefix).resolve() == self._venv.resolve()

    def _known(self) -> dict:
        try:
            return json.loads(self._stamp.read_text())
        except (OSError, ValueError):
            return {}

    def _made_of(self) -> str:
        parts = [self._requirements.read_text(), sys.version, str(ROOT)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def _lines(self) -> dict[str, str]:
        """Each requirement by its name."""
        lines = (line.strip() for line in self._requirements.read_text().splitlines())
        return {line.partition("==")[0]: line for line in lines if line and not line.startswith("#")}

    def _install(self) -> dict[str, str]:
        """All at once, or else one by one: name and reason of those that cannot be installed."""
        status, _ = self._pip("--requirement", str(self._requirements))
        if status == 0:
            return {}
        missing = {}
        for name, line in self._lines().items():
            status, said = self._pip("--constraint", str(self._requirements), line)
            if status:
                missing[name] = _reason(said)
        return missing

    def _pip(self, *arguments: str) -> tuple[int, str]:
        return self._run([str(self.python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet", *arguments])

    def _check(self, command: list[str], what: str) -> None:
        status, said = self._run(command)
        if status:
            raise Unusable(f"{self._venv} {what}: {_reason(said)}")

    def _link_checkout(self) -> None:
        """The package where it stands, as `make install` has built it: every run measures the checkout as it is."""
        for packages in (self._venv / "lib").glob("python*/site-packages"):
            (packages / "brambling.pth").write_text(f"{ROOT / 'python'}\n")

    @staticmethod
    def _refuse_unbuilt() -> None:
        if not list((ROOT / "python" / "brambling").glob("_native*.so")):
            raise Unusable("Brambling itself is not built here; `make install` builds it, and `make peers` does both")


def _run(command: list[str]) -> tuple[int, str]:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    return done.returncode, done.stdout


def _reason(said: str) -> str:
    """The line that says what went wrong, of all that a command said."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["it said nothing"])[-1][:300]
