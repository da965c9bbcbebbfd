# Adds the ctest entries of a GoogleTest executable. tessera_test writes a file that sets the variables name, executable, scripts, labels
# and timeout, and then includes this file. Loading LibTorch takes longer than most tests, so each suite runs in one process, as the entry
# EXECUTABLE:SUITE. Each test has its own entry, which reads the test's result from the output of that process.
set(list "${executable}.list")
set(output "${executable}.output")

if(NOT EXISTS "${executable}")
  add_test("${name}_NOT_BUILT" "${name}_NOT_BUILT")
  return()
endif()

if(NOT "${list}" IS_NEWER_THAN "${executable}" OR NOT EXISTS "${list}")
  execute_process(COMMAND "${executable}" --gtest_list_tests OUTPUT_VARIABLE lines RESULT_VARIABLE code TIMEOUT 60)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${executable} --gtest_list_tests ended with ${code}\n${lines}")
  endif()
  # The list has a line "Suite." before the lines "  Test" of the suite's tests. The text after " # " is the value of a test's parameter.
  string(REGEX REPLACE " +#[^\n]*" "" lines "${lines}")
  string(REGEX MATCHALL "[^\n]+" lines "${lines}")
  set(tests "")
  foreach(line IN LISTS lines)
    if(line MATCHES "^  (.+)$")
      string(APPEND tests "${suite}${CMAKE_MATCH_1}\n")
    else()
      set(suite "${line}")
    endif()
  endforeach()
  file(WRITE "${list}" "${tests}")
endif()

set(known "")
file(STRINGS "${list}" tests)
foreach(test IN LISTS tests)
  string(REGEX REPLACE "\\.[^.]*$" "" suite "${test}")
  string(REPLACE "/" "_" file "${suite}")
  set(file "${output}/${file}")
  if(NOT "${suite}" STREQUAL "${known}")
    set(known "${suite}")
    add_test("${name}:${suite}" "${scripts}/run_suite.sh" "${executable}" "${suite}" "${file}")
    set_tests_properties("${name}:${suite}" PROPERTIES FIXTURES_SETUP "${name}:${suite}" LABELS "${labels}" TIMEOUT ${timeout})
    if(labels MATCHES "distributed")  # these suites take longest, so they start first
      set_tests_properties("${name}:${suite}" PROPERTIES ENVIRONMENT "OMP_NUM_THREADS=1" COST 100)
    endif()
  endif()
  add_test("${test}" "${scripts}/test_result.sh" "${file}" "${test}")
  set_tests_properties("${test}" PROPERTIES FIXTURES_REQUIRED "${name}:${suite}" LABELS "${labels}" TIMEOUT 300
                       SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
endforeach()
