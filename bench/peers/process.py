"""A worker as its caller holds it: asked, waited for until a deadline, and ended with all that it has started."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class Failed(Exception):
    """A system did not answer as it should; the text is the reason."""


class Worker:
    """
    A process, in a session of its own, that answers each line with a line.

    Parameters
    ----------
    command : sequence of str
    environment : mapping
        All of its environment variables.
    folder : Path
        Where it runs, and where its log is.
    deadline : float
        Seconds in which it has to answer, each time.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path, deadline: float) -> None:
        self._deadline = deadline
        self._log = folder / "log"
        self._unread = b""
        with self._log.open("wb") as log:
            # Of its own session: Ctrl-C is for the caller, which then ends everything in it.
            self._process = subprocess.Popen(
                command,
                env=environment,
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def ask(self, do: str, *arguments: Any) -> dict[str, Any]:
        """
        The answer to one command.

        Raises
        ------
        Failed
            It said why it cannot, ended, or did not answer in time; in the latter cases nothing of it is left.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"do": do, "with": arguments}).encode() + b"\n")
            self._process.stdin.flush()
        line = self._line(do)
        try:
            answer = json.loads(line)
        except ValueError as error:
            self.kill()
            raise Failed(f"`{do}` was answered by what is no JSON: {line[:80]!r}") from error
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def _line(self, do: str) -> bytes:
        assert self._process.stdout is not None
        end = time.monotonic() + self._deadline
        while b"\n" not in self._unread:
            ready, _, _ = select.select([self._process.stdout], [], [], max(end - time.monotonic(), 0))
            if not ready:
                self.kill()
                raise Failed(f"no answer to `{do}` within {self._deadline:g} s (--deadline)")
            read = os.read(self._process.stdout.fileno(), 1 << 16)
            if not read:
                raise Failed(self._how_it_ended())
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _how_it_ended(self) -> str:
        self.kill()
        status = self._process.returncode
        how = f"ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return f"{how}: {lines[-1].strip()}" if lines else how

    def end(self, patience: float = 10) -> None:
        """Let it end by itself for so many seconds, then kill what is left."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        self.kill()

    def kill(self) -> None:
        """End it and everything in its session: a Java machine, say, and what that has started."""
        while members := _members(self._process.pid):
            for member in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
            # Its exit status is taken by nobody else, so it would stay a member as a zombie.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.01)
            time.sleep(0.01)
        self._process.wait()


def _members(session: int) -> list[int]:
    """The living processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            # After the name, which may hold anything: state, parent, group, session.
            state, _, _, of = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:4]
            if int(of) == session and state not in "ZX":
                found.append(int(entry.name))
    return found
