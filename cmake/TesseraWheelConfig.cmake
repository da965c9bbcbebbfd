# Answers find_package(Tessera) in the wheel: cmake -DCMAKE_PREFIX_PATH="$(python3 -m tessera --cmake-prefix)". One shared library
# contains tessera::tessera, ::data, ::evaluation, ::training and so on. PyTorch's headers and libraries are used directly, from Torch_ROOT,
# from CMAKE_PREFIX_PATH or from next to the wheel. PyTorch's CMake package is not used, so no CUDA toolkit is needed.
get_filename_component(tessera_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
list(TRANSFORM CMAKE_PREFIX_PATH APPEND "/include" OUTPUT_VARIABLE tessera_prefix_includes)
find_path(TESSERA_TORCH_INCLUDE torch/csrc/api/include/torch/torch.h NO_DEFAULT_PATH
          PATHS "${Torch_ROOT}/include" ${tessera_prefix_includes} "${tessera_prefix}/../torch/include")
if(NOT TESSERA_TORCH_INCLUDE)
  set(Tessera_FOUND FALSE)
  set(Tessera_NOT_FOUND_MESSAGE "there is no PyTorch in CMAKE_PREFIX_PATH or next to ${tessera_prefix}: pass its folder as -DTorch_ROOT=site-packages/torch")
  return()
endif()
get_filename_component(tessera_torch_libraries "${TESSERA_TORCH_INCLUDE}/../lib" ABSOLUTE)
find_package(Threads REQUIRED)

if(NOT TARGET tessera::tessera)
  add_library(tessera::whole SHARED IMPORTED)
  set_target_properties(tessera::whole PROPERTIES
    IMPORTED_LOCATION "${tessera_prefix}/lib/libtessera.so"
    INTERFACE_INCLUDE_DIRECTORIES "${tessera_prefix}/include;${TESSERA_TORCH_INCLUDE};${TESSERA_TORCH_INCLUDE}/torch/csrc/api/include"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${TESSERA_TORCH_INCLUDE};${TESSERA_TORCH_INCLUDE}/torch/csrc/api/include"
    INTERFACE_COMPILE_FEATURES cxx_std_20)
  # LibTorch exports an incomplete copy of std::filesystem, so the system's libstdc++ must come first. Undefined symbols are allowed,
  # because a PyTorch without CUDA lacks symbols that libtessera.so needs only with CUDA.
  target_link_options(tessera::whole INTERFACE -Wl,--no-as-needed -lstdc++ -Wl,--allow-shlib-undefined)
  target_link_libraries(tessera::whole INTERFACE Threads::Threads "${tessera_torch_libraries}/libtorch.so"
    "${tessera_torch_libraries}/libtorch_cpu.so" "${tessera_torch_libraries}/libc10.so")
  foreach(part tessera base report index bench data evaluation training)
    add_library(tessera::${part} INTERFACE IMPORTED)
    target_link_libraries(tessera::${part} INTERFACE tessera::whole)
  endforeach()
endif()
