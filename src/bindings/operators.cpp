// Registers the operators when libtessera.so is loaded, and says for which PyTorch it was built.
#include <torch/version.h>

#include "src/ops/operators.h"

namespace tessera {
namespace {

// python/tessera/_library.py reads this in the file before it loads it: under another PyTorch loading fails at some symbol.
[[maybe_unused, gnu::used]] const char kLibraryMadeFor[] = "tessera_ops for PyTorch " TORCH_VERSION;

[[maybe_unused]] const bool registered = [] {
  register_operators();
  return true;
}();

}  // namespace
}  // namespace tessera
