// libFuzzer's entry point, for the target that TESSERA_FUZZ_TARGET names.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tessera::fuzz::TESSERA_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
