"""The builder: statements become a program."""

from brambling._program.handles import Dataset, Exchange, Signal
from brambling._program.program import Program
from brambling._program.result import Result

__all__ = ["Dataset", "Exchange", "Program", "Result", "Signal"]
