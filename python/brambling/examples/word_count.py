"""
Count words: rows to the partition of their key, then a count there. With names of files: of these, by map-reduce.
"""

import sys
from collections import Counter

import brambling as br

TEXT = """
The brambling is a finch. In winter bramblings gather in flocks, and a flock of millions has no leader:
each bird looks at the birds around it, and the flock goes where its birds go.
"""


def words_of_line(_: None, ctx: br.Context) -> list[tuple[str, int]]:
    """Words of every n-th line, in lower case."""
    lines = TEXT.strip().splitlines()[ctx.partition :: ctx.partitions]
    return [(word.strip(".,:").lower(), 1) for line in lines for word in line.split()]


def count(rows: list[tuple[str, int]]) -> dict[str, int]:
    counter: Counter[str] = Counter()
    for word, times in rows:
        counter[word] += times
    return dict(counter)


def count_text() -> dict[str, int]:
    p = br.Program("word count")
    lines = p.dataset("lines", partitions=2)
    words = p.map(words_of_line, lines)
    counts = p.map(count, p.shuffle(words, key=0, partitions=4))
    p.keep(counts)
    return {word: times for part in p.run()[counts] for word, times in part.items()}


files = sys.argv[1:]
together = br.map_reduce(files, "words", "sum") if files else count_text()
for word, times in sorted(together.items(), key=lambda item: (-item[1], item[0]))[:5]:
    print(f"{times:3} {word}")
