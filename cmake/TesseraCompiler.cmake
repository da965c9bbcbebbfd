# Language level, warnings, launcher and linker: settings that must be the same for all targets, so that they can share one precompiled
# header.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# NDEBUG in every build type: LibTorch is a release build, and the debug-only checks in its headers read members that a release build
# never sets (RecordFunction::inputs fails, for example). Debug builds check the standard library's containers instead.
# -O1, because most of our code only calls LibTorch, and -O2 takes nearly twice as long to compile. Libraries with their own hot loops
# ask for more (tessera_with_hot_loops, kernels).
set(CMAKE_CXX_FLAGS_RELEASE "-O1 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g -DNDEBUG -D_GLIBCXX_ASSERTIONS")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
# Installed programs find LibTorch where the build did.
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

# Unity builds (CMAKE_UNITY_BUILD, on in the preset release): most compile time goes into LibTorch's templates, which files that are
# compiled together instantiate once. This makes a clean build faster; for editing, use the preset develop.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 32)
if(CMAKE_UNITY_BUILD)
  # Types with internal linkage used as members are fine in a .cpp, but in a unity build the compiler does not see that it is one.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()

# -fPIC for programs, too: with -fPIE the compiler rejects a header that was precompiled with -fPIC.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fPIC>
                    $<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra> $<$<COMPILE_LANGUAGE:CXX>:-Wshadow>
                    # Our aggregates are meant to be initialized partially.
                    $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # GCC collects garbage often with LibTorch's templates in memory; a larger heap saves a sixth of the time.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:SHELL:--param=ggc-min-heapsize=2000000>
                      $<$<COMPILE_LANGUAGE:CXX>:SHELL:--param=ggc-min-expand=200>)
endif()
if(TESSERA_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address,undefined> $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=address,undefined)
endif()

if(TESSERA_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g)
  add_link_options(-fsanitize=address,undefined)
endif()

find_program(TESSERA_CCACHE ccache)
if(TESSERA_CCACHE)
  # Without the sloppiness, ccache caches nothing that uses a precompiled header. The base directory lets clones share results.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${TESSERA_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
endif()
include(CheckLinkerFlag)
check_linker_flag(CXX -fuse-ld=mold TESSERA_HAS_MOLD)
if(TESSERA_HAS_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# libtorch.so exports an incomplete copy of std::filesystem (remove_all jumps to address 0), so the system's libstdc++ must come
# first in the search order of every program.
add_link_options(-Wl,--no-as-needed -lstdc++)
