#!/usr/bin/env bash
# Shards of 128 MB leave a worker over a link of 1 Gbit/s, because it is drained. Last line: JSON, whose `share_of_link` the claim
# compares. As root, where network namespaces can be made.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
exec "$root/.venv/bin/python" "$root/bench/claims/migration.py" "$@"
