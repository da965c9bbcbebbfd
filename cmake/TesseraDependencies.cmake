# Compilers and packages of the build itself; what users of the installed libraries need too is in TesseraPackages.cmake.
if(TESSERA_WITH_CUDA)
  set(CMAKE_CUDA_ARCHITECTURES ${TESSERA_CUDA_ARCHITECTURES})
  set(CMAKE_CUDA_STANDARD 17)  # CMake 3.25 knows no CUDA20 for nvcc 13; the kernels need no more
  enable_language(CUDA)
endif()
include(TesseraPackages)
find_package(CLI11 REQUIRED)
if(TESSERA_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
