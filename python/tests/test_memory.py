"""What worker processes really take, and what kernels take of a budget. Needs Linux's /proc."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from processes import eventually, running

import brambling as br

# The larger form, for `bench/claims`: 600 MB on two workers of 200 MB.
SCALE = int(os.environ.get("BRAMBLING_MEMORY_TEST_SCALE", "1"))
MEMORY_MB = 20 * SCALE
GIVEN_MB = 60 * SCALE


def peak_mb(pid):
    """The most that a process has had in memory."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024


@pytest.fixture
def workers(tmp_path, monkeypatch):
    """A cluster of two workers with little memory each, and their processes."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    how = ("--threads", "1", "--memory", f"{MEMORY_MB}MB")
    with running(tmp_path, "controller", "--bind", "127.0.0.1:0") as (_, address):
        at = ("worker", "--controller", address, *how)
        with running(tmp_path, *at), running(tmp_path, *at), br.connect(address) as cluster:
            eventually(lambda: len(cluster.status()["workers"]) == 2)
            yield [worker["pid"] for worker in cluster.status()["workers"]]


def samples(megabytes):
    rows = megabytes * 2**20 // 8 // 8
    x = np.random.default_rng(1).standard_normal((rows, 8))
    return x, (x[:, 0] > 0).astype(float)


def test_a_fit_that_does_not_fit_is_refused_before_anything_is_sent(workers):
    """Such a fit once took 1.2 GB on workers that were given 200 MB, and succeeded."""
    br.ml.LogisticRegression(max_iter=2, tol=0).fit(*samples(1))
    idle = [peak_mb(pid) for pid in workers]
    with pytest.raises(br.OutOfMemory) as caught:
        br.ml.LogisticRegression().fit(*samples(GIVEN_MB))
    for part in (f"of the {MEMORY_MB * 2**20} bytes that it was given", "bytes of rows to w", "nothing was sent", "--memory"):
        assert part in str(caught.value), caught.value
    # Nor did a worker take it for a moment: VmHWM is the most there ever was.
    grown = [peak_mb(pid) - before for pid, before in zip(workers, idle, strict=True)]
    assert max(grown) <= 0.1 * MEMORY_MB, grown


def test_a_fit_that_fits_stays_within_the_budget(workers):
    """Each worker holds three quarters of what it may."""
    br.ml.LogisticRegression(max_iter=2, tol=0).fit(*samples(1))
    idle = [peak_mb(pid) for pid in workers]
    br.ml.LogisticRegression(max_iter=2, tol=0).fit(*samples(MEMORY_MB * 4 // 3))
    grown = [peak_mb(pid) - before for pid, before in zip(workers, idle, strict=True)]
    assert max(grown) <= 1.1 * MEMORY_MB, grown


def reserving(nbytes, seen):
    p = br.Program("reserving")

    def kernel(x, ctx):
        with ctx.reserve(nbytes) as room:
            seen.append(room.nbytes)
        seen.append(room.nbytes)
        return x

    p.map(kernel, p.dataset("x", value=1.0))
    return p


def test_a_kernel_takes_of_its_jobs_budget(monkeypatch):
    monkeypatch.setenv("BRAMBLING_MEMORY", "1MB")
    seen = []
    tally = reserving(500_000, seen).run(threads=1).tally
    assert seen == [500_000, 0] and tally["peak_bytes"] >= 500_000
    with pytest.raises(br.OutOfMemory, match=r"stage `kernel` on partition 0 ran out of memory: resident data asked for 2000000 bytes with .* of 1048576"):
        reserving(2_000_000, seen).run(threads=1)


def test_a_kernel_that_is_refused_may_do_with_less(monkeypatch):
    monkeypatch.setenv("BRAMBLING_MEMORY", "1MB")
    p = br.Program("modest")

    def kernel(x, ctx):
        try:
            ctx.reserve(2_000_000)
        except br.OutOfMemory:
            return -x
        return x

    result = p.map(kernel, p.dataset("x", value=1.0))
    p.keep(result)
    assert p.run(threads=1)[result] == -1.0


def test_a_failure_after_a_refusal_is_its_own(monkeypatch):
    monkeypatch.setenv("BRAMBLING_MEMORY", "1MB")
    p = br.Program("clumsy")

    def kernel(x, ctx):
        try:
            ctx.reserve(2_000_000)
        except br.OutOfMemory:
            raise ValueError("otherwise") from None

    p.map(kernel, p.dataset("x", value=1.0))
    with pytest.raises(br.KernelError, match="otherwise"):
        p.run(threads=1)


def test_memory_is_reserved_in_kernels_only():
    kept = []
    p = br.Program("kept")
    p.map(lambda x, ctx: kept.append(ctx), p.dataset("x", value=1.0))
    p.run(threads=1)
    with pytest.raises(br.Error, match="where its kernel does not run"):
        kept[0].reserve(1)
