#!/bin/sh
# run_suite.sh EXECUTABLE SUITE OUTPUT: runs a suite of GoogleTest's in one process and keeps what it printed. A failed test is no
# failure here: its own entry tells (test_result.sh). A process that ends otherwise is one, and all of its tests count as not run.
mkdir -p "$(dirname "$3")"
"$1" --gtest_filter="$2.*" --gtest_also_run_disabled_tests > "$3" 2>&1
code=$?
if [ $code -ne 0 ] && ! grep -q '\[  FAILED  \]' "$3"; then
  cat "$3"
  echo "the process ended with $code, and no test had failed"
  exit 1
fi
