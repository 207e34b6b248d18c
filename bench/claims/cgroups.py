"""CPU quotas for processes, by control groups of either version."""

import contextlib
import os
from pathlib import Path


class NoCgroupsError(Exception):
    """Why no process can be given a quota here."""


def _mounts():
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        yield Path(where), kind, options.split(",")


def _place():
    """Where groups that limit CPU are made, and their version."""
    for where, kind, options in _mounts():
        if kind == "cgroup" and "cpu" in options:
            return where, 1
    for where, kind, _ in _mounts():
        if kind == "cgroup2" and "cpu" in (where / "cgroup.controllers").read_text().split():
            with contextlib.suppress(OSError):
                (where / "cgroup.subtree_control").write_text("+cpu")
            return where, 2
    raise NoCgroupsError("no control groups that limit CPU are mounted")


class Quota:
    """A group of processes that get a share of a core, in periods of 10 ms."""

    PERIOD_US = 10_000

    def __init__(self, name, share):
        where, self.version = _place()
        self.path = where / name
        try:
            self.path.mkdir(exist_ok=True)
            self.set(share)
            # What else runs on this machine takes as little as can be.
            file, most = ("cpu.shares", 262_144) if self.version == 1 else ("cpu.weight", 10_000)
            (self.path / file).write_text(str(most))
        except OSError as error:
            raise NoCgroupsError(f"{self.path} cannot be made and set: {error}; control groups need root") from error

    def set(self, share):
        quota_us = round(share * self.PERIOD_US)
        if self.version == 1:
            (self.path / "cpu.cfs_period_us").write_text(str(self.PERIOD_US))
            (self.path / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (self.path / "cpu.max").write_text(f"{quota_us} {self.PERIOD_US}")

    def add(self, pid):
        (self.path / "cgroup.procs").write_text(str(pid))

    def remove(self):
        """Once its processes have ended."""
        with contextlib.suppress(OSError):
            self.path.rmdir()


def quotas(count, share):
    """Groups of this process's own, of a share of a core each."""
    return [Quota(f"brambling-{os.getpid()}-{index}", share) for index in range(count)]
