#!/usr/bin/env bash
# Sets up, builds, and runs the whole test suite. Arguments go to ctest: scripts/test.sh -L unit -R Sparc
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh
ctest --test-dir build --output-on-failure --parallel "$(nproc)" "$@"
