// Reads region features from .npy files.
#include "src/data/formats/regions.h"

#include "tests/fuzz/target.h"
#include <tessera/data/source.h>

namespace tessera::fuzz {

void fuzz_npy(std::string_view input) {
  try {
    const NpyMatrix matrix = read_npy(input);
    require(matrix.rows >= 0 && matrix.columns >= 0, "npy: negative size");
    require(matrix.values.size() == static_cast<std::size_t>(matrix.rows * matrix.columns), "npy: wrong number of values");
    require(matrix.values.size() * 2 <= input.size(), "npy: more values than bytes");
  } catch (const SampleError& error) {
    require(error.reason() == "bad_regions", "npy: an unexpected reason");
    check_message(error);
  }
}

}  // namespace tessera::fuzz
