# Builds one libFuzzer program per target, bin/fuzz_NAME. The parsers are compiled here with sanitizers. The targets config, model_file
# and request, which also need models and objectives, link the libraries of a normal build instead.
set(TESSERA_FUZZ_LIBRARIES ${PROJECT_SOURCE_DIR}/build CACHE PATH "build folder whose libraries config, model_file and request link")

file(GLOB parsers ${PROJECT_SOURCE_DIR}/src/data/tokenizers/*.cpp ${PROJECT_SOURCE_DIR}/src/data/tokenizers/json/*.cpp)
foreach(name formats/byte_stream formats/captions formats/column_file formats/data_files formats/field_expression
             formats/json_values formats/paths formats/regions formats/row_filter formats/table
             image/bmp image/decode image/gif image/image_header image/jpeg image/orientation image/png image/tiff image/webp features/feature_folder source
             sources/annotation_files sources/listed_images sources/parquet sources/rows sources/tables
             sources/webdataset/index_cache sources/webdataset/shard_stream sources/webdataset/shards)
  list(APPEND parsers ${PROJECT_SOURCE_DIR}/src/data/${name}.cpp)
endforeach()
foreach(name pickle pytorch_file safetensors safetensors_header tar)
  list(APPEND parsers ${PROJECT_SOURCE_DIR}/src/io/${name}.cpp)
endforeach()
file(GLOB index_parsers ${PROJECT_SOURCE_DIR}/src/index/*.cpp)
list(APPEND parsers ${index_parsers})
set(fuzz_packages opencv_core opencv_imgproc opencv_imgcodecs PkgConfig::sentencepiece PkgConfig::icu PkgConfig::libarchive
  PkgConfig::libjpeg PkgConfig::libpng PkgConfig::libtiff PkgConfig::libwebp ZLIB::ZLIB)
add_library(fuzz_support STATIC target.cpp)
target_include_directories(fuzz_support PUBLIC ${PROJECT_SOURCE_DIR})
target_compile_definitions(fuzz_support PUBLIC TESSERA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
target_compile_options(fuzz_support PUBLIC ${TORCH_CXX_FLAGS})
target_include_directories(fuzz_support SYSTEM PUBLIC ${TORCH_INCLUDE_DIRS})
target_link_libraries(fuzz_support PUBLIC tessera_base)

add_library(fuzz_parsers STATIC ${parsers} tokenizers.cpp)
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/data/formats/column_file.cpp PROPERTIES COMPILE_DEFINITIONS "${TESSERA_ARROW_DEFINITIONS}")
if(TARGET tessera_arrow)
  add_dependencies(fuzz_parsers tessera_arrow)
endif()
target_link_libraries(fuzz_parsers
  PUBLIC fuzz_support tessera_kernels ${TORCH_INSTALL_PREFIX}/lib/libtorch_cpu.so ${TORCH_INSTALL_PREFIX}/lib/libc10.so
  PRIVATE tessera_remote ${fuzz_packages})

foreach(target ${targets})
  add_executable(fuzz_${target} libfuzzer.cpp targets/${target}.cpp)
  target_compile_definitions(fuzz_${target} PRIVATE TESSERA_FUZZ_TARGET=fuzz_${target})
  target_link_options(fuzz_${target} PRIVATE -fsanitize=fuzzer -lsentencepiece)  # before c10, as in src/CMakeLists.txt
  target_link_libraries(fuzz_${target} PRIVATE fuzz_support)
  if(NOT target MATCHES "config|model_file|request")
    target_link_libraries(fuzz_${target} PRIVATE fuzz_parsers tessera_remote)
  endif()
endforeach()
set(linked config model_file)
if(TARGET fuzz_request)
  list(APPEND linked request)
  foreach(name gallery model_thread request service)
    target_sources(fuzz_request PRIVATE ${PROJECT_SOURCE_DIR}/src/serving/${name}.cpp)
  endforeach()
endif()
foreach(target IN LISTS linked)
  foreach(library training evaluation data)
    target_link_libraries(fuzz_${target} PRIVATE ${TESSERA_FUZZ_LIBRARIES}/src/libtessera_${library}.a)
  endforeach()
  target_link_libraries(fuzz_${target} PRIVATE ${TESSERA_FUZZ_LIBRARIES}/src/report/libtessera_report.a
    ${TESSERA_FUZZ_LIBRARIES}/src/index/libtessera_index.a ${TESSERA_FUZZ_LIBRARIES}/src/libtessera.a
    ${TESSERA_FUZZ_LIBRARIES}/src/ops/libtessera_operators.a ${TESSERA_FUZZ_LIBRARIES}/kernels/libtessera_kernels.a
    tessera_remote tessera_base ${TORCH_LIBRARIES}
    ${fuzz_packages} gomp)
  if(TARGET CUDA::cudart)
    target_link_libraries(fuzz_${target} PRIVATE CUDA::cudart)
  endif()
endforeach()
