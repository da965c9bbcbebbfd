#!/usr/bin/env bash
# Measures what many ranks cost at the start, when they agree, and when one of them is lost: docs/distributed.md shows the numbers. The ranks
# are processes of this machine, without a model.
set -euo pipefail
case ${1:-} in
  -h|--help) echo "usage: scripts/check/many_ranks.sh [RANKS ...]    (default: 64 256)"; exit 0 ;;
esac
bench=${TESSERA_BENCH:-$(dirname "$0")/../../build/bin/tessera-bench}
[ $# -gt 0 ] || set -- 64 256
ulimit -n "$(ulimit -H -n)"  # rank 0 keeps two connections of each rank
for ranks in "$@"; do
  "$bench" ranks --ranks "$ranks"
done
