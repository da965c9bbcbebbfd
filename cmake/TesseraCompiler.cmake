# Language level, warnings, launcher and linker: everything that must be equal for all targets, so that one precompiled
# header can serve them all.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# NDEBUG in every build type: LibTorch is a release build, and its headers' debug-only checks read members that such a library
# never sets (RecordFunction::inputs fails, for one). Debug builds check the standard library's containers instead.
# Most of our code calls LibTorch and waits for it, and -O2 takes nearly twice as long to compile it. Libraries with loops of their own
# ask for more (tessera_with_hot_loops, kernels).
set(CMAKE_CXX_FLAGS_RELEASE "-O1 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g -DNDEBUG -D_GLIBCXX_ASSERTIONS")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
# Installed programs find LibTorch where the build did.
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

# Unity builds (CMAKE_UNITY_BUILD, on in the preset release): most of a file's time goes into LibTorch's templates, which files
# compiled together instantiate once. That makes a clean build faster; who edits wants the preset develop.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)
if(CMAKE_UNITY_BUILD)
  # Private types made of a file's local ones: sound in a .cpp, which the compiler no longer recognizes as one.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()

# -fPIC for programs too: a header precompiled with -fPIC is refused where -fPIE is in force.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fPIC>
                    $<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra> $<$<COMPILE_LANGUAGE:CXX>:-Wshadow>
                    # Aggregates are made to be initialized in part.
                    $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>)
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
  # Without the sloppiness ccache stores nothing behind a precompiled header; base_dir lets clones share results.
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

# libtorch.so exports an incomplete copy of std::filesystem (remove_all jumps to address 0): the system's libstdc++ has to come
# first in the search order of every program.
add_link_options(-Wl,--no-as-needed -lstdc++)
