"""
Files that no other place holds: lines of 100 bytes to sort, and words of unequal frequency, made
from fixed seeds a piece at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

LINE_BYTES = 100
# It stands in the lines that are planted and in no other: words are shorter. Its letters are theirs.
RARE = "ramblingbrambles"
# Letters from the most frequent one to the rarest in English, and how frequent they are, in percent.
_LETTERS = b"etaoinshrdlcumwfgypbvkjxqz"
_PERCENT = (
    12.7,
    9.1,
    8.2,
    7.5,
    7.0,
    6.7,
    6.3,
    6.1,
    6.0,
    4.3,
    4.0,
    2.8,
    2.8,
    2.4,
    2.4,
    2.2,
    2.0,
    2.0,
    1.9,
    1.5,
    1.0,
    0.8,
    0.15,
    0.15,
    0.1,
    0.07,
)
_KEY_BYTES = 10
_ROWS_AT_ONCE = 500_000
_WORDS_AT_ONCE = 2_000_000
_VOCABULARY = 200_000
_WORDS_OF_A_LINE = 12
# Lines in which the rare text stands, of a file of words.
_PLANTED = 20


def lines_to_sort(folder: Path, rows: int) -> None:
    """`lines`: each a key of 10 random printable bytes, its number, and a filler, with a newline 100 bytes; no blanks, no quotes."""
    rng = np.random.default_rng(5)
    with (folder / "lines").open("wb") as file:
        for first in range(0, rows, _ROWS_AT_ONCE):
            count = min(_ROWS_AT_ONCE, rows - first)
            block = np.full((count, LINE_BYTES), ord("."), np.uint8)
            block[:, :_KEY_BYTES] = rng.integers(ord("0"), ord("z") + 1, (count, _KEY_BYTES), np.uint8)
            # A backslash is what some readers of text take for more than itself.
            block[:, :_KEY_BYTES][block[:, :_KEY_BYTES] == ord("\\")] = ord("~")
            numbers = np.arange(first, first + count)
            for digit in range(10):
                block[:, _KEY_BYTES + 10 - digit] = ord("0") + numbers // 10**digit % 10
            block[:, -1] = ord("\n")
            block.tofile(file)


def words(folder: Path, bytes: int) -> None:  # noqa: A002
    """`words`: about so many bytes of lines of words, the n-th of which is 1/n as frequent as the first one; some lines hold `RARE`."""
    with (folder / "words").open("wb") as file:
        every = max(bytes // _PLANTED, 1)
        for piece in _pieces(bytes):
            # Lines are kept whole.
            before = file.tell()
            file.write(piece)
            if before // every != file.tell() // every:
                file.write(f"{RARE} stands here\n".encode())


def _pieces(bytes: int) -> Iterator[bytes]:  # noqa: A002
    rng = np.random.default_rng(6)
    lengths = rng.integers(2, 12, _VOCABULARY)
    # A word with room for what comes after it, a blank or a newline.
    table = rng.choice(np.frombuffer(_LETTERS, np.uint8), (_VOCABULARY, 12), p=np.array(_PERCENT) / sum(_PERCENT))
    columns = np.arange(12)
    table[columns >= lengths[:, None]] = ord(" ")
    is_used = columns <= lengths[:, None]
    frequency = np.cumsum(1 / np.arange(1, _VOCABULARY + 1))
    frequency /= frequency[-1]
    made = 0
    while made < bytes:
        count = min(_WORDS_AT_ONCE, (bytes - made) // 8 + 1)
        chosen = np.searchsorted(frequency, rng.random(count))
        text = table[chosen]
        last = np.append(np.arange(_WORDS_OF_A_LINE - 1, count, _WORDS_OF_A_LINE), count - 1)
        text[last, lengths[chosen[last]]] = ord("\n")
        piece = text[is_used[chosen]].tobytes()
        made += len(piece)
        yield piece
