# ctest entries of a GoogleTest executable; tessera_test writes a file that sets the variables below and includes this one. Loading LibTorch
# takes longer than most tests, so each suite runs in one process, as the entry EXECUTABLE:SUITE. The entry of each test then reads its
# result from that process's output.
# Input: name, executable, scripts, labels, timeout.
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
  # The list has a line "Suite." before the lines "  Test" of its tests; text after " # " shows a parameter's value.
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
  endif()
  add_test("${test}" "${scripts}/test_result.sh" "${file}" "${test}")
  set_tests_properties("${test}" PROPERTIES FIXTURES_REQUIRED "${name}:${suite}" LABELS "${labels}" TIMEOUT 300
                       SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
endforeach()
