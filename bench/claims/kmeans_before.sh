#!/usr/bin/env bash
# What an iteration of k-means costs beside an older version: `kmeans_before.sh BASE [ROUNDS] [ROWS]`. The same program on the data of
# the bench `kmeans` (bench/examples/kmeans_iteration.rs) is built here and in a clone at BASE, and both run in turn: 10 million rows,
# two threads, 10 and 100 centres. Last line: JSON, whose `ratio` are medians here ÷ before.
set -euo pipefail

base=${1:?the commit to compare with} rounds=${2:-7} rows=${3:-10000000}
root=$(cd "$(dirname "$0")/../.." && pwd)
before=$root/build/before
unset CARGO_TARGET_DIR

build() {
    (cd "$1" && cargo build --quiet --release --workspace --example kmeans_iteration) >&2
}

[ -d "$before/.git" ] || git clone --quiet --no-checkout "$root" "$before"
git -C "$before" fetch --quiet origin
git -C "$before" checkout --quiet --force "$base"
cp "$root/bench/examples/kmeans_iteration.rs" "$before/bench/examples/"
build "$before"
build "$root"

python=$root/.venv/bin/python
[ -x "$python" ] || python=python3
exec "$python" - "$root" "$before" "$rounds" "$rows" <<'PYTHON'
import json
import statistics
import subprocess
import sys

root, before, rounds, rows = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
places = {"here": root, "before": before}


def run(place, k):
    command = [f"{places[place]}/target/release/examples/kmeans_iteration", str(k), "2", rows]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def summary(found):
    return {"median": statistics.median(found), "min": min(found), "max": max(found)}


ks = []
for k in (10, 100):
    found = {place: [] for place in places}
    for number in range(rounds):
        # Whoever comes first meets what was left behind: in turn.
        for place in sorted(places, reverse=number % 2 == 1):
            found[place].append(run(place, k))
    figures = {place: summary(times) for place, times in found.items()}
    ratio = figures["here"]["median"] / figures["before"]["median"]
    ks.append({"k": k, "ratio": round(ratio, 4), "here_ms": figures["here"], "before_ms": figures["before"]})
    print(f"k = {k}: {figures['here']['median']:.1f} ms here, {figures['before']['median']:.1f} ms before", file=sys.stderr)
print(json.dumps({"ks": ks}))
PYTHON
