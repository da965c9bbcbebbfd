# Packages. LibTorch's CMake package asks for a CUDA toolkit and appends its own -gencode flags; both are handled here so that
# only TESSERA_CUDA_ARCHITECTURES decides.
if(TESSERA_WITH_CUDA)
  set(CMAKE_CUDA_ARCHITECTURES ${TESSERA_CUDA_ARCHITECTURES})
  set(CMAKE_CUDA_STANDARD 17)  # CMake 3.25 knows no CUDA20 for nvcc 13; the kernels need no more
  enable_language(CUDA)
endif()
# LibTorch with CUDA looks for a toolkit even when no kernel is built. The list only keeps it from guessing architectures.
set(ENV{TORCH_CUDA_ARCH_LIST} "8.0;9.0")
set(tessera_cuda_flags "${CMAKE_CUDA_FLAGS}")
find_package(Torch REQUIRED)
set(CMAKE_CUDA_FLAGS "${tessera_cuda_flags}")

find_package(Threads REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 REQUIRED)
find_package(spdlog REQUIRED)
if(TESSERA_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
if(TESSERA_WITH_DATA)
  find_package(OpenCV REQUIRED COMPONENTS core imgproc imgcodecs)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(sentencepiece REQUIRED IMPORTED_TARGET sentencepiece)
  pkg_check_modules(libarchive REQUIRED IMPORTED_TARGET libarchive)
  pkg_check_modules(turbojpeg REQUIRED IMPORTED_TARGET libturbojpeg)
endif()
