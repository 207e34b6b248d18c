#!/usr/bin/env python3
"""
What `brambling probe` says of this machine beside fio, iperf3 and a loop like STREAM's, in the same minutes.

    probe_beside.py [--rounds 5] [--dir DIR] [--command BRAMBLING]

In each round every probe is run by itself, and the other tool right after it, with the same blocks, streams, sizes and threads: fio reads and
writes files in DIR, iperf3 sends one flow over the loopback device, and a program in C, compiled here, reads and copies arrays as STREAM does. A figure of
either side is the median of its rounds, and in a round the median of five samples. The last line is JSON: the largest difference of a figure
from the other tool's, as a share of the latter, and both figures of each pair. Where a tool is missing it says so, and the exit code is 2.
"""

import argparse
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = 5
# Over the arrays, in a sample.
SWEEPS = 4
PATIENCE_S = 300
# As the probe does: four times the largest cache, within bounds.
ARRAYS_LEAST, ARRAYS_MOST = 256 << 20, 4 << 30

STREAM = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

// Reads an array in order, or from four places of each thread's part at once, or copies one half of it to the other, with pinned threads that
// have a part each; bytes per second of each sample, which is some sweeps. A copied byte counts twice.
enum { PLACES = 4, BLOCK = 64 };
static uint64_t *data;
static size_t words;
static int threads;
static char what;
static atomic_int arrived, turn;
static struct timespec begins[1024], ends[1024];

static double seconds(struct timespec at) { return at.tv_sec + 1e-9 * at.tv_nsec; }

// Spins, so that nobody has to be woken.
static void barrier(void) {
    int now = turn;
    if (atomic_fetch_add(&arrived, 1) + 1 == threads) {
        arrived = 0;
        turn++;
    } else
        for (int looks = 0; turn == now; looks++)
            if (looks > 2000) sched_yield();
}

static uint64_t read_in_order(const uint64_t *from, size_t begin, size_t end) {
    uint64_t all = 0;
    for (size_t at = begin; at < end; at++) all |= from[at];
    return all;
}

static uint64_t read_places(const uint64_t *from, size_t begin, size_t end) {
    size_t part = (end - begin) / PLACES / BLOCK * BLOCK;
    uint64_t all = 0;
    for (size_t block = 0; block < part; block += BLOCK)
        for (size_t place = 0; place < PLACES; place++) {
            const uint64_t *here = from + begin + place * part + block;
            for (size_t at = 0; at < BLOCK; at++) all |= here[at];
        }
    return all | read_in_order(from, begin + PLACES * part, end);
}

static void sweep(uint64_t *restrict from, uint64_t *restrict to, size_t begin, size_t end) {
    // The compiler must not know that nobody else writes here.
    __asm__ volatile("" : "+r"(from), "+r"(to) : : "memory");
    if (what == 'c')
        for (size_t at = begin; at < end; at++) to[at] = from[at];
    else {
        uint64_t all = what == 'r' ? read_in_order(from, begin, end) : read_places(from, begin, end);
        __asm__ volatile("" : : "r"(all));
    }
    __asm__ volatile("" : "+r"(from), "+r"(to) : : "memory");
}

static void *work(void *argument) {
    size_t index = (size_t)argument;
    cpu_set_t allowed, one;
    sched_getaffinity(0, sizeof allowed, &allowed);
    int cpu = -1;
    for (size_t seen = 0; seen <= index % CPU_COUNT(&allowed); seen++)
        do cpu++; while (!CPU_ISSET(cpu, &allowed));
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    size_t of = what == 'c' ? words / 2 : words, begin = of * index / threads, end = of * (index + 1) / threads;
    uint64_t *to = data + words / 2;
    for (size_t at = begin; at < end; at++) data[at] = at;
    if (what == 'c') for (size_t at = begin; at < end; at++) to[at] = 1;
    for (int sample = 0; sample < SAMPLES + 1; sample++) {
        barrier();
        clock_gettime(CLOCK_MONOTONIC, &begins[index]);
        for (int at = 0; at < SWEEPS; at++) sweep(data, to, begin, end);
        clock_gettime(CLOCK_MONOTONIC, &ends[index]);
        barrier();
        // The first one warms up.
        if (index == 0 && sample) {
            double first = seconds(begins[0]), last = seconds(ends[0]);
            for (int at = 1; at < threads; at++) {
                if (seconds(begins[at]) < first) first = seconds(begins[at]);
                if (seconds(ends[at]) > last) last = seconds(ends[at]);
            }
            printf("%.0f\n", 8.0 * words * SWEEPS / (last - first));
        }
        barrier();
    }
    return 0;
}

int main(int count, char **arguments) {
    if (count != 4) return 1;
    what = arguments[1][0];
    threads = atoi(arguments[2]);
    words = strtoull(arguments[3], 0, 10) / 16 * 2;
    data = aligned_alloc(4096, (words * 8 + 4095) / 4096 * 4096);
    if (!data) return 1;
    pthread_t ids[1024];
    for (size_t at = 0; at < (size_t)threads; at++) pthread_create(&ids[at], 0, work, (void *)at);
    for (int at = 0; at < threads; at++) pthread_join(ids[at], 0);
    return 0;
}
"""


def output(*words, **how):
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False, **how)
    if done.returncode != 0:
        sys.exit(f"probe_beside.py: {' '.join(map(str, words))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def median_of(sample, samples):
    return statistics.median(sample() for _ in range(samples))


def probed(command, folder, part, *arguments):
    """What a probe of ours says, and which of its figures it calls noisy."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder)}
    return json.loads(output(command, "probe", "--only", part, "--json", *arguments, env=environment))


def fio(folder, rate, mode, *arguments):
    """One run with the streams and blocks of a rate of ours, each stream from one buffer as ours: bytes per second."""
    told = output(
        "fio", "--name=probe", f"--directory={folder}", "--ioengine=psync", "--thread", "--group_reporting", "--fallocate=none", "--scramble_buffers=0",
        "--output-format=json", f"--direct={int(mode == 'direct')}", "--invalidate=1", f"--bs={rate['block_bytes']}",
        f"--numjobs={rate['streams']}", f"--size={rate['file_bytes']}", *arguments)
    # Warnings may come first.
    job = json.loads(told[told.index("{"):])["jobs"][0]
    return max(job["read"]["bw_bytes"], job["write"]["bw_bytes"])


def disks(command, folder, directory, samples=SAMPLES):
    """Pairs of ours and fio's."""
    found = probed(command, folder, "disk", "--dir", directory)["disks"][0]
    with tempfile.TemporaryDirectory(dir=directory) as files:

        def write():
            for old in Path(files).iterdir():
                old.unlink()
            return fio(files, found["write"], found["mode"], "--rw=write", "--end_fsync=1")

        written = median_of(write, samples)
        for old in Path(files).iterdir():
            old.unlink()
        # Files of the size that ours has read.
        fio(files, found["read"], found["mode"], "--rw=write", "--end_fsync=1")
        read = median_of(lambda: fio(files, found["read"], found["mode"], "--rw=read", "--time_based", "--runtime=1"), samples)
    return {
        "disk_read": (found["read"]["bytes_per_s"], read),
        "disk_write": (found["write"]["bytes_per_s"], written),
    }


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


@contextlib.contextmanager
def iperf_server():
    port = free_port()
    with subprocess.Popen(["iperf3", "-s", "-B", "127.0.0.1", "-p", port, "--forceflush"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            while "listening" not in server.stdout.readline():
                pass
            yield port
        finally:
            server.terminate()


def loopback(command, folder):
    found = probed(command, folder, "loopback")["loopback"]
    one = next(it for it in found["flows"] if it["flows"] == 1)

    def flow(port):
        return json.loads(output("iperf3", "-c", "127.0.0.1", "-p", port, "-t", "1", "-J"))["end"]["sum_received"]["bits_per_second"] / 8

    with iperf_server() as port:
        return {"loopback": (one["bytes_per_s"], median_of(lambda: flow(port), SAMPLES))}


def array_bytes():
    units = {"K": 1 << 10, "M": 1 << 20}
    sizes = [it.read_text().strip() for it in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    largest = max((int(it[:-1]) * units[it[-1]] for it in sizes), default=0)
    return min(max(4 * largest, ARRAYS_LEAST), ARRAYS_MOST)


def memory(command, folder, stream):
    found = max(probed(command, folder, "memory")["memory"], key=lambda it: it["threads"])

    def loop(what):
        told = output(stream, what, str(found["threads"]), str(array_bytes()))
        return statistics.median(map(float, told.split()))

    return {
        # As the probe does, by the loop that is faster here.
        "memory_read": (found["read_bytes_per_s"], max(loop("read"), loop("places"))),
        "memory_copy": (found["copy_bytes_per_s"], loop("copy")),
    }


def compiled(folder):
    source, program = folder / "stream.c", folder / "stream"
    source.write_text(STREAM, encoding="utf-8")
    output("cc", "-O3", "-march=native", f"-DSAMPLES={SAMPLES}", f"-DSWEEPS={SWEEPS}", "-pthread", "-o", str(program), str(source))
    return str(program)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", default=str(ROOT))
    parser.add_argument("--command", default=str(ROOT / ".venv" / "bin" / "brambling"))
    asked = parser.parse_args()
    missing = [it for it in ("fio", "iperf3", "cc", asked.command) if not shutil.which(it)]
    if missing:
        print(f"probe_beside.py: not found here: {', '.join(missing)}; nothing was compared", file=sys.stderr)
        sys.exit(2)
    rounds, noisy = [], set()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        stream = compiled(folder)
        for at in range(asked.rounds):
            found = {**memory(asked.command, folder, stream), **loopback(asked.command, folder), **disks(asked.command, folder, asked.dir)}
            noisy |= {name for name, (ours, _) in found.items() if ours["noisy"]}
            rounds.append({name: (ours["median"], theirs) for name, (ours, theirs) in found.items()})
            print(f"round {at + 1}: " + ", ".join(f"{name} {ours / 1e9:.3g} | {theirs / 1e9:.3g} GB/s" for name, (ours, theirs) in rounds[-1].items()))
    pairs = {}
    for name in rounds[0]:
        ours, theirs = (statistics.median(it[name][side] for it in rounds) for side in (0, 1))
        pairs[name] = {"ours_bytes_per_s": ours, "theirs_bytes_per_s": theirs, "difference": abs(ours / theirs - 1)}
    print(json.dumps({"largest_difference": max(it["difference"] for it in pairs.values()), **pairs, "noisy": sorted(noisy)}))


if __name__ == "__main__":
    main()
