#!/bin/sh
# run_suite.sh EXECUTABLE SUITE OUTPUT: runs a GoogleTest suite in one process and writes its output to a file. A failed test is
# not an error here, because test_result.sh reports it. If the process fails for another reason, this is an error, and all its tests
# count as not run.
mkdir -p "$(dirname "$3")"
"$1" --gtest_filter="$2.*" --gtest_also_run_disabled_tests > "$3" 2>&1
code=$?
if [ $code -ne 0 ] && ! grep -q '\[  FAILED  \]' "$3"; then
  cat "$3"
  echo "the process ended with $code, and no test had failed"
  exit 1
fi
