#!/usr/bin/env bash
# A newcomer's two commands, in a fresh clone of the last commit, with an empty HOME.
#
#   demo      clones, runs `make demo` twice; the second, built, is timed. Last line: JSON
#   offline   runs the demo of that clone in a network namespace without network
#   test      clones, runs `make test`
set -euo pipefail

what=${1:?demo, offline or test}
root=$(cd "$(dirname "$0")/../.." && pwd)
: "${CARGO_HOME:=$HOME/.cargo}" "${RUSTUP_HOME:=$HOME/.rustup}"
export CARGO_HOME RUSTUP_HOME
# The clone must build for itself, whatever this session set.
unset CARGO_TARGET_DIR BRAMBLING_COMMAND VIRTUAL_ENV RUSTFLAGS

clone() {
    place=$root/build/claims/$1
    rm -rf "$place" "$place-home"
    mkdir -p "$place-home"
    git clone --quiet "$root" "$place"
    export HOME=$place-home
    cd "$place"
}

case $what in
demo)
    clone demo
    make demo >&2
    start=$(date +%s.%N)
    make demo >&2
    end=$(date +%s.%N)
    awk -v start="$start" -v end="$end" 'BEGIN { printf "{\"demo_s\": %.1f}\n", end - start }'
    ;;
offline)
    cd "$root/build/claims/demo"
    HOME=$root/build/claims/demo-home unshare --map-root-user --net .venv/bin/brambling run flights
    ;;
test)
    clone test
    make test
    ;;
*)
    echo "$0: demo, offline or test" >&2
    exit 2
    ;;
esac
