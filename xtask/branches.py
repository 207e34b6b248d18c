#!/usr/bin/env python3
"""Which branches of the protocol machines the tests run; docs/internals/invariants.md says what is left and why.

Needs llvm-profdata and llvm-cov of the LLVM that `rustc -vV` names, on the PATH or in the folder LLVM_BIN.
Each test binary has a profile of its own: what is generic is compiled into several, and does not match across them.
"""

import collections
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "target" / "branches"
RAW = BUILD / "raw"
CRATES = ["protocol", "exchange", "worker", "controller", "simulation"]
MACHINES = re.compile(
    r"crates/(protocol/src/|controller/src/|worker/src/(shard|node)(/|\.rs)"
    r"|exchange/src/(router|inbox|credits|room|parcel|sources|combining)(/|\.rs))"
)


def tool(name):
    return os.path.join(os.environ.get("LLVM_BIN", ""), name)


def run_tests():
    """All tests of these crates; this script starts each binary, so that its profile bears its name."""
    env = {"BRAMBLING_SEEDS": "300", **os.environ}
    env |= {
        "RUSTC_BOOTSTRAP": "1",  # Counting branches, and not regions alone, is not stable yet.
        "RUSTFLAGS": "-C instrument-coverage -Z coverage-options=branch",
        "CARGO_PROFILE_RELEASE_OPT_LEVEL": "1",
        "CARGO_TARGET_DIR": str(BUILD),
        "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER": f"{sys.executable} {__file__}",
        "LLVM_PROFILE_FILE": str(BUILD / "built" / "%m.profraw"),
    }
    crates = [word for crate in CRATES for word in ("-p", f"brambling-{crate}")]
    test = ["cargo", "test", "--release", "--no-fail-fast", *crates, "--lib", "--tests"]
    subprocess.run([*test, "--", "--test-threads=1"], check=True, cwd=ROOT, env=env)


def run_binary(binary, *arguments):
    RAW.mkdir(parents=True, exist_ok=True)
    profile = RAW / f"{os.path.basename(binary)}.%p.profraw"
    os.execve(binary, [binary, *arguments], {**os.environ, "LLVM_PROFILE_FILE": str(profile)})


def counted():
    """By file, regions and sides of branches, each with how often it ran in the binary in which it ran most."""
    regions, sides = collections.defaultdict(dict), collections.defaultdict(dict)
    for name in sorted({path.name.split(".")[0] for path in RAW.glob("*.profraw")}):
        profile = BUILD / f"{name}.profdata"
        raw = [str(path) for path in RAW.glob(f"{name}.*.profraw")]
        subprocess.run([tool("llvm-profdata"), "merge", "-sparse", *raw, "-o", str(profile)], check=True)
        binary = BUILD / "release" / "deps" / name
        export = [tool("llvm-cov"), "export", f"-instr-profile={profile}"]
        export = subprocess.run([*export, str(binary)], capture_output=True, text=True)
        # A binary without a test has no profile.
        for function in json.loads(export.stdout)["data"][0]["functions"] if export.stdout else []:
            files = [os.path.relpath(file, ROOT) for file in function["filenames"]]
            for *at, count, file, _, kind in function["regions"]:
                if kind == 0:
                    of = regions[files[file]]
                    of[tuple(at)] = max(of.get(tuple(at), 0), count)
            for *at, yes, no, file, _, _ in function["branches"]:
                of = sides[files[file]]
                for side, count in (("true", yes), ("false", no)):
                    of[*at, side] = max(of.get((*at, side), 0), count)
    return regions, sides


def report(regions, sides):
    """Figures by crate, and each place that never ran; `mutant` stands where a mutant would take it there."""
    totals = collections.defaultdict(lambda: [0, 0, 0, 0])
    for file in sorted(it for it in regions if MACHINES.match(it) and not it.endswith("/tests.rs")):
        lines = (ROOT / file).read_text().splitlines()
        tests = next((at for at, it in enumerate(lines) if it.startswith("#[cfg(test)]")), len(lines))
        total = totals[file.split("/")[1]]
        for place, of in ((0, regions[file]), (2, sides.get(file, {}))):
            of = {at: count for at, count in of.items() if at[0] <= tests}
            total[place] += sum(count > 0 for count in of.values())
            total[place + 1] += len(of)
            for at in sorted(at for at, count in of.items() if not count):
                line = lines[at[0] - 1].strip()
                mutant = "mutant" if "mutants::is_on" in line else ""
                side = f"never {at[4]}" if place else ""
                print(f"{file}:{at[0]}:{at[1]} {side} {mutant} {line}")
    for crate, (ran, count, taken, all_sides) in totals.items():
        print(f"{crate}: regions {ran} of {count}, sides of branches {taken} of {all_sides}")


if len(sys.argv) > 1:
    run_binary(*sys.argv[1:])
for old in RAW.glob("*.profraw"):
    old.unlink()
run_tests()
report(*counted())
