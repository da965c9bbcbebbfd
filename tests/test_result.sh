#!/bin/sh
# test_result.sh OUTPUT TEST: prints the part of a suite's output (see run_suite.sh) that belongs to a test. Exits with 0 if the
# test passed or was skipped, otherwise with 1.
awk -v test="$2" '
  function about(mark) {  # whether the line has this mark and then the name of the test; output without a line end may precede the mark
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
