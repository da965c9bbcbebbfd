# Compilers and packages that only the build needs. TesseraPackages.cmake lists the packages that users of the installed libraries also
# need.
if(TESSERA_WITH_CUDA)
  set(CMAKE_CUDA_ARCHITECTURES ${TESSERA_CUDA_ARCHITECTURES})
  set(CMAKE_CUDA_STANDARD 17)  # CMake 3.25 does not support CUDA20 with nvcc 13; 17 suffices for the kernels
  enable_language(CUDA)
endif()
include(TesseraPackages)
find_package(CLI11 REQUIRED)
if(TESSERA_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()

# Finds the plotting library of the pages (configs/page.html), which becomes part of tessera_report.
find_file(TESSERA_DYGRAPHS dygraph.min.js PATHS ${CMAKE_PREFIX_PATH} /usr /usr/local PATH_SUFFIXES share/javascript/dygraphs NO_DEFAULT_PATH
          DOC "dygraph.min.js of the plotting library dygraphs 2.2 or newer")
if(NOT TESSERA_DYGRAPHS)
  message(FATAL_ERROR "The plotting library dygraphs was not found: install the package libjs-dygraphs (Debian 12, Ubuntu 24.04), or set "
                      "-DTESSERA_DYGRAPHS=.../dygraph.min.js")
endif()

# Finds Arrow, for Parquet, in the pyarrow package next to LibTorch's package or in the system. Without Arrow, libtessera_arrow.so is not
# built.
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
  file(STRINGS ${PROJECT_SOURCE_DIR}/scripts/setup.sh tessera_arrow_series REGEX "^arrow_version=")
  string(REGEX MATCH "[0-9]+\\.[0-9]+" tessera_arrow_series "${tessera_arrow_series}")
  # Paths where programs look for libtessera_arrow.so, and the pyarrow version that it must be built with.
  set(TESSERA_ARROW_DEFINITIONS "TESSERA_ARROW_BUILT=\"${CMAKE_BINARY_DIR}/lib/libtessera_arrow.so\""
      "TESSERA_ARROW_INSTALLED=\"${CMAKE_INSTALL_FULL_LIBDIR}/libtessera_arrow.so\"" "TESSERA_PYARROW_VERSION=\"${tessera_arrow_series}.*\"")
  if(NOT TARGET tessera_arrow_libraries)
    message(STATUS "Arrow was not found, so Parquet files cannot be read (install pyarrow next to LibTorch with pip)")
  endif()
endif()

# Finds the HTTP library and the metrics of tessera-serve, which is not built without them.
if(TESSERA_WITH_DATA)
  pkg_check_modules(httplib IMPORTED_TARGET cpp-httplib)
  pkg_check_modules(prometheus IMPORTED_TARGET prometheus-cpp-core)
  if(NOT httplib_FOUND OR NOT prometheus_FOUND)
    message(STATUS "tessera-serve is not built: install libcpp-httplib-dev and prometheus-cpp-dev")
  endif()
endif()

# Finds the headers of libcurl, which reads remote addresses. Without them, remote addresses are refused.
if(TESSERA_WITH_DATA)
  pkg_check_modules(libcurl libcurl>=7.88)
  if(NOT libcurl_FOUND)
    message(STATUS "libcurl 7.88 was not found, so s3://, gs:// and https:// cannot be read: install libcurl4-openssl-dev")
  endif()
endif()
