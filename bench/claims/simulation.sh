#!/usr/bin/env bash
# The cluster in virtual time, with costs measured first.
#
#   thousand   1,000 workers of 18 cores, on one core. Last line: JSON, whose `seconds` the claim compares
#   streams    20,000 programs whose exchanges are streamed, against the sequential interpreter
#   recoveries 20,000 clusters (SEEDS: another number) that lose workers and controllers, half of them with real executors, whose stores fail. Last line: JSON
#   figures    Figures 5, 6 and 8 of the Canary paper as SVG, and their numbers, into build/claims/simulation
set -euo pipefail

what=${1:?thousand, streams, recoveries or figures}
root=$(cd "$(dirname "$0")/../.." && pwd)
place=$root/build/claims/simulation
mkdir -p "$place"
cd "$root"

# Leaves the path of an example's program in $program.
build() {
    cargo build --quiet --release -p brambling-simulation --example "$1"
    program=${CARGO_TARGET_DIR:-$root/target}/release/examples/$1
}

if [ "$what" = streams ]; then
    BRAMBLING_SEEDS=20000 cargo test --release -p brambling-simulation --test streams
    exit
fi

if [ "$what" = recoveries ]; then
    # Half of the seeds for each of the two tests.
    export BRAMBLING_SEEDS=$(( ${SEEDS:-20000} / 2 ))
    cargo test --release -p brambling-simulation --test recovery --test takeover -- --nocapture lose_members whoever_is_lost \
        | tee "$place/recoveries.txt"
    # Both tests say what they have done: `Deeds { runs: 10000, recovered: 7000, ...`.
    sum() { sed -n "s/.*[{ ]$1: \([0-9]*\).*/\1/p" "$place/recoveries.txt" | awk '{ n += $1 } END { print n + 0 }'; }
    runs=$(sum runs) recovered=$(sum recovered) damaged=$(sum damaged)
    [ "$runs" = $(( 2 * BRAMBLING_SEEDS )) ] || { echo "$0: $runs runs of $(( 2 * BRAMBLING_SEEDS ))" >&2; exit 1; }
    awk -v runs="$runs" -v recovered="$recovered" -v damaged="$damaged" 'BEGIN {
        printf "{\"runs\": %d, \"recovered\": %d, \"recovered_share\": %.4f, \"damaged_writes\": %d}\n", runs, recovered, recovered / runs, damaged
    }'
    exit
fi

# Two threads send each other messages: that is measured before one core is all there is.
build thousand
"$program" --measure >"$place/costs.json"

case $what in
thousand)
    # A core of those that this process may use.
    core=$(taskset -pc $$ 2>/dev/null | sed 's/.*: *//; s/[-,].*//') || core=
    ${core:+taskset -c "$core"} "$program" --json --costs "$place/costs.json" | tee "$place/thousand.json"
    ;;
figures)
    build figures
    "$program" --json --costs "$place/costs.json" >"$place/figures.json"
    "$root/.venv/bin/python" "$root/bench/claims/figures.py" "$place/figures.json" "$place"
    ;;
*)
    echo "$0: thousand, streams, recoveries or figures" >&2
    exit 2
    ;;
esac
