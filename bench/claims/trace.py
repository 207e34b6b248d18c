#!/usr/bin/env python3
"""
The trace of a report, decoded packet by packet with the schema that PyPI's perfetto ships, as JSON: the largest difference between a
thread's sum of a part and the ledger's, as a share of the ledger's. Less than a microsecond counts as one: slices are whole
nanoseconds.

Slices that do not nest, or overlap, fail; so do fields that the schema does not know. The trace of JSON is compared with the same
ledger.

    trace.py [FOLDER]    of what `brambling-machine`'s example `report` wrote there; it is run without
"""

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from packages import needs

needs("perfetto", "perfetto>=0.50,<1")
from google.protobuf.unknown_fields import UnknownFieldSet  # noqa: E402
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


def unknown(message):
    """Fields that the schema has no name for, in a message and those in it."""
    found = len(UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            found += sum(unknown(part) for part in (value if hasattr(value, "__len__") else [value]))
    return found


def decoded(file):
    """Seconds by (process, thread) and part, from Perfetto's own format."""
    trace = Trace()
    trace.ParseFromString(file.read_bytes())
    processes, threads, stacks = {}, {}, defaultdict(list)
    sums, ends, packets = defaultdict(lambda: defaultdict(float)), defaultdict(int), 0
    for packet in trace.packet:
        packets += 1
        assert unknown(packet) == 0, f"packet {packets} has fields that the schema does not know: {packet}"
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            if track.HasField("process"):
                processes[track.uuid] = track.process
            else:
                assert processes[track.parent_uuid].pid == track.thread.pid, f"a thread of another process: {track}"
                threads[track.uuid] = (track.thread.pid, track.thread.tid)
                assert track.thread.thread_name, f"a thread without a name: {track}"
            continue
        event = packet.track_event
        thread, stack = threads[event.track_uuid], stacks[event.track_uuid]
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            assert packet.timestamp >= ends[thread], f"slice {event.name} of {thread} begins before the one before it ends"
            assert len(stack) < 2 and (event.categories[0] == "part") == (len(stack) == 1), f"{event.name} is at the wrong depth"
            stack.append((event.name, event.categories[0], packet.timestamp))
        else:
            assert event.type == TrackEvent.TYPE_SLICE_END, f"packet {packets} is neither a begin nor an end"
            name, category, begin = stack.pop()
            assert packet.timestamp >= max(begin, ends[thread]), f"slice {name} of {thread} ends before it began, or before one in it"
            if category == "part":
                sums[thread][name] += (packet.timestamp - begin) / 1e9
        ends[thread] = packet.timestamp
    assert not any(stacks.values()), "slices are left open"
    print(f"{packets} packets, {len(threads)} threads of {len(processes)} processes", file=sys.stderr)
    return sums


def decoded_json(file):
    """The same from the trace of JSON."""
    sums = defaultdict(lambda: defaultdict(float))
    for event in json.loads(file.read_text(encoding="utf-8"))["traceEvents"]:
        if event["ph"] == "X" and event["cat"] == "part":
            sums[event["pid"], event["tid"]][event["name"]] += event["dur"] / 1e6
    return sums


def difference(report, sums):
    """The largest of all threads and parts, as a share of what the report says."""
    threads = [thread for worker in report["workers"] for thread in worker["threads"]]
    assert len(threads) == len(sums), f"{len(sums)} threads have slices, {len(threads)} are in the report"
    found = 0.0
    for thread, (_, by_part) in zip(threads, sorted(sums.items()), strict=True):
        parts = {name.replace("_", " "): seconds for name, seconds in thread["parts"].items() if seconds > 0}
        assert set(parts) == set(by_part), f"{thread['name']} has the parts {sorted(by_part)}, not {sorted(parts)}"
        found = max(found, *(abs(by_part[name] - seconds) / max(seconds, 1e-6) for name, seconds in parts.items()))
    return found


def judged(folder):
    """The largest difference of both traces."""
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return max(difference(report, decoded(folder / "trace.pftrace")), difference(report, decoded_json(folder / "trace.json")))


def main():
    if len(sys.argv) > 1:
        largest = judged(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            command = ["cargo", "run", "--quiet", "--release", "--package", "brambling-machine", "--example", "report", "--", folder]
            subprocess.run(command, check=True, cwd=ROOT)
            largest = judged(Path(folder))
    print(json.dumps({"largest_difference": largest}))


main()
