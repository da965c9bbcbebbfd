# Language level, warnings, compiler launcher and linker. These settings must be the same for all targets, so that the targets can share
# one precompiled header.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# NDEBUG is set in every build type. LibTorch is a release build, and debug-only checks in its headers read members that a release build
# never sets (RecordFunction::inputs fails, for example). Debug builds enable the standard library's container checks instead.
# The level is -O1, because most of our code only calls LibTorch, and -O2 takes nearly twice as long to compile. Libraries with
# their own hot loops use a higher level (tessera_with_hot_loops, kernels).
set(CMAKE_CXX_FLAGS_RELEASE "-O1 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g -DNDEBUG -D_GLIBCXX_ASSERTIONS")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
# Installed programs look for LibTorch in the folder where the build found it.
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

# Unity builds make a clean build faster (CMAKE_UNITY_BUILD, on in the preset release). Most compile time is spent on LibTorch's
# templates, which files that are compiled together instantiate only once. While you edit, use the preset develop.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 80)
if(CMAKE_UNITY_BUILD)
  # A .cpp file may use types with internal linkage for members. In a unity build the compiler does not know that the code is from a .cpp
  # file, so it would warn.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()

# Programs are compiled with -fPIC, too. With -fPIE the compiler would reject a header that was precompiled with -fPIC.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fPIC>
                    $<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra> $<$<COMPILE_LANGUAGE:CXX>:-Wshadow>
                    # Many of our aggregates are initialized only partially, on purpose.
                    $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # LibTorch's templates fill GCC's memory, so it collects garbage often. A larger heap saves a sixth of the compile time.
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
  # Without CCACHE_SLOPPINESS, ccache caches nothing that uses a precompiled header. With a base directory, clones of the repository share
  # cached results.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${TESSERA_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()
set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CURRENT_LIST_DIR}/ptxas_messages.sh ${launcher})
include(CheckLinkerFlag)
check_linker_flag(CXX -fuse-ld=mold TESSERA_HAS_MOLD)
if(TESSERA_HAS_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# libtorch.so exports an incomplete copy of std::filesystem (remove_all jumps to address 0), so the system's libstdc++ must come
# first in the search order of every program.
add_link_options(-Wl,--no-as-needed -lstdc++)
