// The libFuzzer entry points for the target that TESSERA_FUZZ_TARGET names.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/target.h"

// Runs the target once so that one-time setup, such as loading vocabularies, does not count as time of the first input.
extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  tessera::fuzz::TESSERA_FUZZ_TARGET({});
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tessera::fuzz::TESSERA_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
