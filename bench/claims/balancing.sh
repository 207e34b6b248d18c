#!/usr/bin/env bash
# Four workers of one thread with 40 % of a core each, one of which falls to 20 % while a job runs. Last line: JSON, whose
# `ms_per_iteration` and `allowed_ms_per_iteration` the claim compares. As root, where control groups can limit CPU.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
exec "$root/.venv/bin/python" "$root/bench/claims/balancing.py" "$@"
