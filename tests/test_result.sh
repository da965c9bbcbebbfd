#!/bin/sh
# test_result.sh OUTPUT TEST: prints a test's part of what its suite printed (run_suite.sh); ends with 0 unless it failed or did
# not end.
awk -v test="$2" '
  function about(mark) {  # whether the line says this of the test, maybe after what the test printed without a line end
    place = index($0, mark)
    return place && match(substr($0, place + length(mark)) " ", "[ ,]") && substr($0, place + length(mark), RSTART - 1) == test
  }
  about("[ RUN      ] ") { begun = 1 }
  begun { print }
  begun && (about("[       OK ] ") || about("[  SKIPPED ] ")) { ended = 1; exit }
  begun && about("[  FAILED  ] ") { ended = 2; exit }
  END {
    if (!begun) print test " did not begin: a test before it ended the process, see " FILENAME
    else if (!ended) print "the process ended within this test"
    exit ended == 1 ? 0 : 1
  }' "$1"
