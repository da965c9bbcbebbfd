# Functions that declare libraries, programs and tests in a uniform way.

# tessera_library(NAME source...) adds a static library. It is exported as tessera:: and NAME without the prefix tessera_.
function(tessera_library name)
  add_library(${name} STATIC ${ARGN})
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>
                                     PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_features(${name} PUBLIC cxx_std_20)
  set_property(GLOBAL APPEND PROPERTY TESSERA_LIBRARIES ${name})
endfunction()

# tessera_program(NAME source... LINK target... [FRONT_END type]) adds a program in build/bin, built from the sources before LINK.
# With FRONT_END, this program is libexec/tessera/NAME instead, and bin/NAME is a small front end without LibTorch that reads the arguments
# into an object of `type`. It compiles the reader of OpenCLIP's parameters, which belongs to the library `tessera`, that it does not link.
function(tessera_program name)
  cmake_parse_arguments(arg "" "FRONT_END" "LINK" ${ARGN})
  set(program ${name})
  if(arg_FRONT_END)
    set(program ${name}_program)
    add_executable(${name} front_end.cpp ${PROJECT_SOURCE_DIR}/src/foreign/open_clip/parameters.cpp)
    target_compile_definitions(${name} PRIVATE TESSERA_ARGUMENTS=${arg_FRONT_END})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(${name} PRIVATE tessera_arguments CLI11::CLI11)
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

# Sets `out` to the number of seconds after which a test counts as hung. This is many times the duration of the longest test of its kind
# on two idle cores.
function(tessera_test_timeout out)
  set(${out} 300 PARENT_SCOPE)
  if("slow" IN_LIST ARGN)
    set(${out} 1800 PARENT_SCOPE)
  endif()
endfunction()

# tessera_command_test(NAME COMMAND word... LABELS label...) adds a ctest entry for any command. Exit code 77 means that the test was
# skipped.
function(tessera_command_test name)
  cmake_parse_arguments(arg "" "" "COMMAND;LABELS" ${ARGN})
  add_test(NAME ${name} COMMAND ${arg_COMMAND})
  tessera_test_timeout(timeout ${arg_LABELS})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 LABELS "${arg_LABELS}" TIMEOUT ${timeout})
endfunction()

# tessera_test(NAME source... LINK target... LABELS label...) adds a GoogleTest executable with one ctest entry per test. The tests of a
# suite share a process. Tests with the label `distributed` fork their ranks. In these tests, operators use one thread, because a fork needs
# a process without other threads.
function(tessera_test name)
  cmake_parse_arguments(arg "" "" "LINK;LABELS" ${ARGN})
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_LINK} GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE TESSERA_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
                             TESSERA_SOURCE_DIR="${PROJECT_SOURCE_DIR}" TESSERA_BINARY_DIR="${CMAKE_BINARY_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
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
endfunction()

# Compiles a library that has its own hot loops with -O2. Such a library should not use LibTorch heavily, because it cannot reuse the
# precompiled header: the compiler rejects a header that was made with other flags.
function(tessera_with_hot_loops name)
  target_compile_options(${name} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O2>)
endfunction()

# Lets a target that uses LibTorch heavily reuse the precompiled header of `tessera_operators`.
function(tessera_use_precompiled_header name)
  target_precompile_headers(${name} REUSE_FROM tessera_operators)
endfunction()
