"""
Jobs on four workers, with a fault every few seconds; for `recovery.py`.

Faults that aim at a moment come soon after a save or a move was asked for, while a job begins again, or while a controller takes over.
A job ends at the third loss in a row, so a snapshot is waited for between faults, but for one that comes in a recovery.
"""

import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from hosts import bridged
from recovery_cluster import PATIENCE_S, cluster
from recovery_kinds import KINDS, S3_KINDS, moments_of, moving, saving

HERE = Path(__file__).resolve().parent
SCALE = os.environ.get("SCALE", "1")
MOMENTS = ("save", "move", "recovery", "takeover")
# What comes next; "any" is whenever it happens to be.
AIMS = ("any", "any", *MOMENTS)
# A fault of this aim is not drawn: it makes the moment for the one that is. It is none of the 200, and one of those that may lead to a cut.
STAGED = "staged"
# What is asked for before a fault.
ASKED = {"save": saving, "move": moving}
# One more loss may follow these at once: three in a row end a job, and others may be two, or come later.
SINGLE = ("worker", "controller")
SAVED_S = 30
# Whoever is done takes its snapshots along within this.
GONE_S = 15


class Round:
    """One job, from its start to its end."""

    def __init__(self, name, it, rng, kinds):
        self.name, self.cluster, self.rng, self.kinds = name, it, rng, kinds
        self.faults, self.lines = [], []
        self.process = it.job(HERE / "survivors.py", name, SCALE)
        # A client outlives whoever is told to end, and waits for its controller.
        self.listening = threading.Thread(target=lambda: self.lines.extend(self.process.stderr), daemon=True)
        self.listening.start()

    def runs(self):
        return self.process.poll() is None

    def pause(self, seconds, until=lambda: False):
        return self.cluster.go_on(seconds, until=lambda: not self.runs() or until())

    def saved(self):
        """Whether a snapshot was taken since the last fault, and two since the job came."""
        last = self.faults[-1][1] if self.faults else 0.0
        taken = self.cluster.events.of("snapshot-taken")
        return len(taken) >= 2 and taken[-1]["time"] > last

    def is_quiet(self):
        """Whether nobody is to be given up that is not yet."""
        return not self.cluster.cut and not self.cluster.expected

    def aim(self, kind):
        """At what moment a fault comes. One in a recovery follows another one at once, and there must be no third loss."""
        aim, (last, *_, before) = self.rng.choice(AIMS), self.faults[-1] if self.faults else (None, None)
        alone = kind != "two" and last in SINGLE and before == "any" and self.is_quiet()
        return "any" if aim == "recovery" and not alone else aim

    def strike(self):
        kind, asked = self.rng.choice(sorted(self.kinds)), {}
        aim = self.aim(kind)
        if aim == "recovery":
            self.pause(self.rng.uniform(0.3, 2))
        else:
            self.pause(self.rng.uniform(0, 4))
            self.pause(SAVED_S, until=lambda: self.saved() and (kind != "two" or self.is_quiet()))
        if self.runs() and aim in ASKED:
            asked[aim] = ASKED[aim](self.cluster, self.rng)
        if self.runs() and aim == "takeover":
            self.take_over()
        if self.runs():
            self.faults.append((kind, time.time(), asked, aim))
            self.kinds[kind](self.cluster, self.rng)
            if kind == "cut":
                # It may have waited for another one to be mended.
                self.faults[-1] = (kind, time.time(), asked, aim)

    def take_over(self):
        """The controller is killed, and the fault comes while the next one takes over."""
        self.faults.append(("controller", time.time(), {}, STAGED))
        KINDS["controller"](self.cluster, self.rng)
        self.cluster.look_after()
        self.pause(self.rng.uniform(0.05, 1.5))

    def drawn(self):
        return [fault for fault in self.faults if fault[3] != STAGED]

    def moments(self):
        """How many faults came at which moments."""
        found, events = Counter(), list(self.cluster.events.all)
        killed = [at for kind, at, *_ in self.faults if kind == "controller"]
        for _, at, asked, _ in self.drawn():
            found.update(moments_of(at, asked, events))
            found["takeover"] += any(self.taking_over(events, begun, at) for begun in killed if begun < at)
        return found

    def taking_over(self, events, begun, at):
        """Whether the controller that came for one that was killed had not begun the job yet."""
        begins = [it["time"] for it in events if it["kind"] in ("job-begun", "job-adopted") and it["time"] > begun]
        return not begins or at <= begins[0]

    def from_cuts(self):
        """Generations that began at a snapshot, after the second one."""
        taken = sorted(event["time"] for event in self.cluster.events.of("snapshot-taken"))
        begun = [event for event in self.cluster.events.of("job-begun") if event["cut"] is not None]
        return sum(len([at for at in taken if at < event["time"]]) >= 2 for event in begun)

    def again(self):
        return max(0, len(self.cluster.events.of("job-begun")) - 1)


def shared_memory():
    return {path.name for path in Path("/dev/shm").iterdir()}


def survive(name, expected, faults, rng, hosts, kinds, kept):
    """One job with its faults: the round's counts, and what went wrong."""
    before = shared_memory()
    folder = tempfile.mkdtemp(prefix="recovery-")
    with cluster(hosts, folder, kept=kept) as it:
        it.whole()
        this = Round(name, it, rng, kinds)
        until = time.monotonic() + PATIENCE_S
        while this.runs() and time.monotonic() < until:
            if len(this.drawn()) < faults:
                this.strike()
                # Each fault costs seconds, more on a busy machine: a job hangs that does not end so long after its last one.
                until = time.monotonic() + PATIENCE_S
            else:
                this.pause(1)
        wrong, left = ended(this, expected), []
        # The snapshots of a job that ended otherwise are its own until its client has been waited for.
        if not wrong:
            it.go_on(GONE_S, until=lambda: not it.left_files())
            left += [f"{path} is left in the store" for path in it.left_files()]
        counts = {"moments": this.moments(), "from_cuts": this.from_cuts(), "again": this.again()}
        counts["faults"] = [kind for kind, *_ in this.drawn()]
        counts["staged"] = len(this.faults) - len(counts["faults"])
        wrong += it.wrong
        left += it.end()
        if wrong or left:
            (it.folder / "events.json").write_text("\n".join(map(str, it.events.all)))
            (it.folder / "faults.txt").write_text("\n".join(map(str, this.faults)) + "\n" + "".join(this.lines))
    left += [f"{path} is left in shared memory" for path in shared_memory() - before]
    told = [f"{name} (in {folder}): {what}" for what in wrong]
    if not told and not left:
        remove(folder)
    return counts, told, left


def remove(folder):
    for path in sorted(Path(folder).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    Path(folder).rmdir()


def ended(this, expected):
    """How the job has ended, if not as it should."""
    done = [kind for kind, *_ in this.faults]
    if this.runs():
        this.process.kill()
        this.process.wait()
        return [f"it hangs after {done}"]
    bits = this.process.stdout.read().splitlines()[-1:]
    this.listening.join()
    if bits != [expected]:
        return [f"other bits after {done}: {''.join(this.lines)[-2000:]}"]
    return []


def run_faults(expected_bits, kinds, kept, wanted, names):
    """All jobs, each until it has seen so many faults."""
    seed = int(os.environ.get("SEED", "1"))
    kinds = {kind: kinds[kind] for kind in os.environ.get("KINDS", " ".join(kinds)).split()}
    wrong, left, all_counts, rows = [], [], Counter(), {}
    moments = Counter(dict.fromkeys(MOMENTS, 0))
    with bridged(6, rate="10gbit") as hosts:
        for name in names:
            rng, seen, counts = random.Random(f"{seed} {name}"), Counter(), Counter()
            expected = expected_bits(name)
            while sum(seen.values()) < wanted:
                its, told, behind = survive(name, expected, wanted - sum(seen.values()), rng, hosts, kinds, kept)
                wrong += told
                left += behind
                seen.update(its["faults"])
                moments.update(its["moments"])
                counts.update({it: its[it] for it in ("from_cuts", "again", "staged")})
                print(f"{name}: {dict(seen)}, {dict(counts)}, {dict(moments)}, {told + behind}", file=sys.stderr, flush=True)
                if not its["faults"] or told:
                    break
            rows[name] = {"faults": {kind: seen[kind] for kind in kinds}, **counts}
            all_counts.update(counts)
            all_counts["faults"] += sum(seen.values())
    return {
        "unlike": len(wrong), "what": wrong, "from_a_cut_share": all_counts["from_cuts"] / max(1, all_counts["faults"] + all_counts["staged"]),
        "least_of_moments": min(moments[it] for it in MOMENTS), "moments": moments, "left_behind": len(left), "left": left,
        "jobs": rows}


def faults(expected_bits):
    names = os.environ.get("JOBS", "kmeans logistic pagerank program").split()
    return run_faults(expected_bits, KINDS, "directory", int(os.environ.get("FAULTS", "200")), names)


def s3(expected_bits):
    """So many faults in all, whatever the jobs."""
    names = os.environ.get("JOBS", "kmeans logistic pagerank program").split()
    wanted = int(os.environ.get("FAULTS", "100"))
    return run_faults(expected_bits, S3_KINDS, "s3", -(-wanted // len(names)), names)
