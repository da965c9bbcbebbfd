# The packages Tessera's libraries stand on; used by its own build and, installed, by projects that link to it.

# LibTorch's CMake package appends its own -gencode flags to CMAKE_CUDA_FLAGS and asks for GPUs it can't find; the list only
# keeps it from guessing, and the flags are put back.
set(ENV{TORCH_CUDA_ARCH_LIST} "8.0;9.0")
set(tessera_cuda_flags "${CMAKE_CUDA_FLAGS}")
find_package(Torch REQUIRED HINTS ${tessera_built_with_torch})
set(CMAKE_CUDA_FLAGS "${tessera_cuda_flags}")

find_package(Threads REQUIRED)
# The OpenMP runtime that LibTorch itself runs on: a second one beside it would be a second pool of threads that spin.
if(NOT TARGET tessera_openmp)
  add_library(tessera_openmp INTERFACE IMPORTED GLOBAL)
  file(GLOB tessera_torch_openmp ${TORCH_INSTALL_PREFIX}/lib/libgomp*.so* ${TORCH_INSTALL_PREFIX}/lib/libiomp5.so)
  if(tessera_torch_openmp)
    list(GET tessera_torch_openmp 0 tessera_torch_openmp)
    target_link_libraries(tessera_openmp INTERFACE ${tessera_torch_openmp})
  else()
    find_package(OpenMP REQUIRED COMPONENTS CXX)
    target_link_libraries(tessera_openmp INTERFACE ${OpenMP_CXX_LIBRARIES})
  endif()
endif()
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json 3.10 REQUIRED)
find_package(spdlog REQUIRED)
if(TESSERA_WITH_DATA)
  find_package(OpenCV REQUIRED COMPONENTS core imgproc imgcodecs)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(sentencepiece REQUIRED IMPORTED_TARGET sentencepiece)
  pkg_check_modules(icu REQUIRED IMPORTED_TARGET icu-i18n icu-uc)
  pkg_check_modules(libarchive REQUIRED IMPORTED_TARGET libarchive)
  pkg_check_modules(libjpeg REQUIRED IMPORTED_TARGET libjpeg)
  find_package(ZLIB REQUIRED)
endif()
