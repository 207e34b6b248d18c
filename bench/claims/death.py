"""
Seconds from a worker's death to the error that ends its job, as JSON: the median of seven deaths.

The error names the worker and what it held, and the cluster runs another job afterwards, or this fails.
"""

import json
import os
import re
import signal
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "python/tests"))
from processes import doubled, running  # noqa: E402

import brambling as br  # noqa: E402

DEATHS = 7


def seconds_to_the_error() -> float:
    arguments = ("cluster", "--workers", "2", "--threads", "1", "--bind", "127.0.0.1:0")
    with running(os.environ["XDG_STATE_HOME"], *arguments) as (_, address), br.connect(address) as cluster:
        victim = cluster.status()["workers"][1]["pid"]
        died = 0.0

        def kill() -> None:
            nonlocal died
            time.sleep(0.4)
            died = time.monotonic()
            os.kill(victim, 9)

        # It is a member of the job, and does nothing.
        os.kill(victim, signal.SIGSTOP)
        killing = threading.Thread(target=kill)
        killing.start()
        try:
            br.map_reduce([text], "words", "sum", output=Path(state) / f"out-{victim}")
        except br.ClusterError as error:
            took = time.monotonic() - died
            expected = rf"worker w2 \(process {victim} on .*\) is gone, and with it \d+ of the job's shards"
            assert re.search(expected, str(error)), error
        else:
            raise AssertionError("the job went on without its worker")
        killing.join()
        assert doubled().run()["x"] == [42] * 4
        return took


with tempfile.TemporaryDirectory() as state:
    os.environ["XDG_STATE_HOME"] = state
    text = Path(state) / "text"
    text.write_text("a b c\n" * 1_000, encoding="utf-8")
    all_of_them = [seconds_to_the_error() for _ in range(DEATHS)]
print(json.dumps({"seconds": statistics.median(all_of_them), "least": min(all_of_them), "most": max(all_of_them)}))
