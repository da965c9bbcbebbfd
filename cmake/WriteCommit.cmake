# cmake -D SOURCE=folder -D HEADER=file -P WriteCommit.cmake writes the commit of SOURCE to HEADER. It leaves HEADER untouched if the
# commit is still the same.
cmake_minimum_required(VERSION 3.25)
set(commit unknown)
find_package(Git QUIET)
if(Git_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${SOURCE} rev-parse --show-prefix
                  OUTPUT_VARIABLE prefix OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  # Writes no commit if SOURCE is a subfolder of another repository, because git would return that repository's commit.
  if(NOT failed AND prefix STREQUAL "")
    execute_process(COMMAND ${GIT_EXECUTABLE} -C ${SOURCE} rev-parse --short=7 HEAD
                    OUTPUT_VARIABLE hash OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
    if(NOT failed)
      set(commit ${hash})
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define TESSERA_COMMIT \"${commit}\"\n")
