// libFuzzer's entry point, for the target that TESSERA_FUZZ_TARGET names.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/target.h"

// What a target makes once (vocabularies, say) is not to count as the time of its first input.
extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  tessera::fuzz::TESSERA_FUZZ_TARGET({});
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tessera::fuzz::TESSERA_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
