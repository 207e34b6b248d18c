#!/usr/bin/env bash
# The cluster in virtual time, with costs measured first.
#
#   thousand   1,000 workers of 18 cores, on one core. Last line: JSON, whose `seconds` the claim compares
#   streams    20,000 programs whose exchanges are streamed, against the sequential interpreter
#   figures    Figures 5, 6 and 8 of the Canary paper as SVG, and their numbers, into build/claims/simulation
set -euo pipefail

what=${1:?thousand, streams or figures}
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
    echo "$0: thousand, streams or figures" >&2
    exit 2
    ;;
esac
