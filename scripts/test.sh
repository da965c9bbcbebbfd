#!/usr/bin/env bash
# Sets up, builds, and runs the whole test suite; with TESSERA_TORCH, for another PyTorch series.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
  -h|--help)
    echo "usage: scripts/test.sh [argument of ctest ...]"
    echo "  scripts/test.sh -L unit -R Sparc    # the unit tests with Sparc in their names"
    exit 0 ;;
esac
# shellcheck source=scripts/torch_series.sh
. scripts/torch_series.sh
scripts/setup.sh
# Several tests run at the same time, each with several threads. Threads that wait must not keep a core busy: with OpenMP's default, tests
# that train take up to four times as long. One test more than there are cores runs, because tests that start ranks or programs often wait.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
report=$PWD/build$build_suffix/Testing/report.xml
rm -f "$report"
ctest --test-dir "build$build_suffix" --output-on-failure --output-junit "$report" --test-output-truncation head --parallel "$(($(nproc) + 1))" "$@" || {
  status=$?
  # Of thousands of tests, the output of those that failed is far up.
  scripts/check/failed_tests.py "$report" || true
  exit $status
}
