# Functions that declare libraries, programs and tests in a uniform way.

# tessera_library(NAME source...): a static library of the project, exported as tessera::NAME without its prefix.
function(tessera_library name)
  add_library(${name} STATIC ${ARGN})
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>
                                     PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_features(${name} PUBLIC cxx_std_20)
  set_property(GLOBAL APPEND PROPERTY TESSERA_LIBRARIES ${name})
endfunction()

# tessera_program(NAME source... LINK target... [FRONT_END source...]): a program in build/bin. With FRONT_END, bin/NAME is a small front
# end without LibTorch, whose sources define answer_at_once (tools/front_end.h), and the program itself, built from the sources before
# LINK, is libexec/tessera/NAME.
function(tessera_program name)
  cmake_parse_arguments(arg "" "" "LINK;FRONT_END" ${ARGN})
  set(program ${name})
  if(arg_FRONT_END)
    set(program ${name}_program)
    add_executable(${name} front_end.cpp ${arg_FRONT_END})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(${name} PRIVATE tessera_base CLI11::CLI11)
    add_dependencies(${name} ${program})
    set_property(GLOBAL APPEND PROPERTY TESSERA_PROGRAMS ${name})
  endif()
  add_executable(${program} ${arg_UNPARSED_ARGUMENTS})
  target_include_directories(${program} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${program} PRIVATE ${arg_LINK} CLI11::CLI11)
  if(arg_FRONT_END)
    set_target_properties(${program} PROPERTIES OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/libexec/tessera)
    set_property(GLOBAL APPEND PROPERTY TESSERA_PROGRAMS_BEHIND ${program})
  else()
    set_property(GLOBAL APPEND PROPERTY TESSERA_PROGRAMS ${program})
  endif()
endfunction()

# Seconds after which a test counts as hung: many times the duration of the longest test of its kind on two idle cores.
function(tessera_test_timeout out)
  set(${out} 300 PARENT_SCOPE)
  if("slow" IN_LIST ARGN)
    set(${out} 1800 PARENT_SCOPE)
  endif()
endfunction()

# tessera_command_test(NAME COMMAND word... LABELS label...): a ctest entry for any command; exit code 77 means skipped.
function(tessera_command_test name)
  cmake_parse_arguments(arg "" "" "COMMAND;LABELS" ${ARGN})
  add_test(NAME ${name} COMMAND ${arg_COMMAND})
  tessera_test_timeout(timeout ${arg_LABELS})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 LABELS "${arg_LABELS}" TIMEOUT ${timeout})
endfunction()

# tessera_test(NAME source... LINK target... LABELS label... [PROCESS_PER_TEST]): a GoogleTest executable with one ctest entry per
# test. The tests of a suite share a process, unless PROCESS_PER_TEST is given. It is for tests that fork, which need a process that has
# not computed anything yet, and for tests that run programs, for which the start of a process matters little.
function(tessera_test name)
  cmake_parse_arguments(arg "PROCESS_PER_TEST" "" "LINK;LABELS" ${ARGN})
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_LINK} GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE TESSERA_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
                             TESSERA_SOURCE_DIR="${PROJECT_SOURCE_DIR}" TESSERA_BINARY_DIR="${CMAKE_BINARY_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(arg_PROCESS_PER_TEST)
    tessera_test_timeout(timeout ${arg_LABELS})
    # gtest_discover_tests splits a list among the properties. One joined label works, because `ctest -L` matches parts of a label.
    string(REPLACE ";" "-" label "${arg_LABELS}")
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES
                         PROPERTIES LABELS ${label} TIMEOUT ${timeout})
  else()
    tessera_test_timeout(timeout slow)
    file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name}_suites.cmake CONTENT
"set(name ${name})
set(executable \"$<TARGET_FILE:${name}>\")
set(scripts \"${PROJECT_SOURCE_DIR}/tests\")
set(labels \"${arg_LABELS}\")
set(timeout ${timeout})
include(\"${PROJECT_SOURCE_DIR}/cmake/SuiteTests.cmake\")
")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}_suites.cmake)
  endif()
endfunction()

# -O2 for a library with its own hot loops. It cannot reuse the precompiled header, because the compiler rejects one that was made
# with other flags, so it should not use LibTorch heavily.
function(tessera_with_hot_loops name)
  target_compile_options(${name} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O2>)
endfunction()

# Reuses the precompiled header of `tessera_operators` for a target that uses LibTorch heavily.
function(tessera_use_precompiled_header name)
  target_precompile_headers(${name} REUSE_FROM tessera_operators)
endfunction()
