"""DuckDB, on files of text: each line is a value of one column."""

from __future__ import annotations

import duckdb

from peers.systems.peer import Arrays, Case
from peers.systems.whole_files import FileSort, FileWords, sorted_counts

# No byte of the text is one that would end a value, quote it or escape another.
_LINES = "read_csv('{}', header = false, auto_detect = false, columns = {{'line': 'VARCHAR'}}, delim = '\x01', quote = '', escape = '')"


def _connected(case: Case) -> duckdb.DuckDBPyConnection:
    folder = case.scratch / "temporary"
    settings = {"threads": case.threads, "memory_limit": f"{case.memory_mb}MiB", "temp_directory": str(folder)}
    return duckdb.connect(config=settings)


class Sort(FileSort):
    """`COPY (… ORDER BY …)`."""

    package = "duckdb"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._database = _connected(case)

    def sort(self) -> None:
        rows = _LINES.format(self.lines)
        self._database.execute(
            f"COPY (SELECT line FROM {rows} ORDER BY line) TO '{self.out}' (FORMAT csv, HEADER false, DELIMITER '\x01', QUOTE '', ESCAPE '')"
        )


class WordCount(FileWords):
    """Words of each line as rows, and `GROUP BY`."""

    package = "duckdb"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._database = _connected(case)

    def iterate(self, iterations: int) -> Arrays:
        rows = _LINES.format(self.words)
        for _ in range(iterations):
            self._found = self._database.execute(
                f"SELECT word, count(*) AS n FROM (SELECT unnest(string_split(line, ' ')) AS word FROM {rows}) GROUP BY word"
            ).fetchnumpy()
        return {}

    def solve(self, iterations: int) -> Arrays:
        self.iterate(iterations)
        return sorted_counts((word.encode() for word in self._found["word"]), self._found["n"].tolist())
