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

# Arrow, for Parquet: out of the wheel of pyarrow beside LibTorch's, or the system's; without it libtessera_arrow.so is not built.
if(TESSERA_WITH_DATA)
  get_filename_component(tessera_site_packages ${TORCH_INSTALL_PREFIX} DIRECTORY)
  set(tessera_pyarrow ${tessera_site_packages}/pyarrow)
  file(GLOB tessera_pyarrow_libraries CONFIGURE_DEPENDS ${tessera_pyarrow}/libparquet.so.* ${tessera_pyarrow}/libarrow.so.*)
  if(tessera_pyarrow_libraries AND EXISTS ${tessera_pyarrow}/include/parquet/arrow/reader.h)
    add_library(tessera_arrow_libraries INTERFACE IMPORTED)
    target_include_directories(tessera_arrow_libraries SYSTEM INTERFACE ${tessera_pyarrow}/include)
    target_link_libraries(tessera_arrow_libraries INTERFACE ${tessera_pyarrow_libraries})
  else()
    find_package(Parquet QUIET)
    if(TARGET Parquet::parquet_shared)
      add_library(tessera_arrow_libraries ALIAS Parquet::parquet_shared)
    endif()
  endif()
  # Where libtessera_arrow.so is looked for beside the programs, and the series of pyarrow that it is to be built with.
  set(TESSERA_ARROW_DEFINITIONS "TESSERA_ARROW_BUILT=\"${CMAKE_BINARY_DIR}/lib/libtessera_arrow.so\""
      "TESSERA_ARROW_INSTALLED=\"${CMAKE_INSTALL_FULL_LIBDIR}/libtessera_arrow.so\"" "TESSERA_PYARROW_VERSION=\"26.0.*\"")
  if(NOT TARGET tessera_arrow_libraries)
    message(STATUS "Arrow is not there: Parquet cannot be read (pip install pyarrow beside LibTorch)")
  endif()
endif()
