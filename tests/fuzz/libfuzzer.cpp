// The libFuzzer entry points for the target that TESSERA_FUZZ_TARGET names.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/target.h"

// Runs the target once, so that one-time setup such as loading vocabularies does not count towards the first input's time.
extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  tessera::fuzz::TESSERA_FUZZ_TARGET({});
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tessera::fuzz::TESSERA_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}

// LibTorch's PyTorchStreamReader leaks its list of entries if its constructor throws, that is, on damaged archives.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:mz_zip_reader_init\n";
}
