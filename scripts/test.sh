#!/usr/bin/env bash
# Sets up, builds, and runs the whole test suite.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
  -h|--help)
    echo "usage: scripts/test.sh [argument of ctest ...]"
    echo "  scripts/test.sh -L unit -R Sparc    # the unit tests with Sparc in their names"
    exit 0 ;;
esac
scripts/setup.sh
ctest --test-dir build --output-on-failure --parallel "$(nproc)" "$@"
