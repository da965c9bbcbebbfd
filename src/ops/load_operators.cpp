// The source of libtessera_ops.so, and one of libtessera.so: torch.ops.load_library runs its initializer. A program that links Tessera
// statically registers the operators on their first use instead (the linker would drop an initializer there).
#include "src/ops/operators.h"

#include <torch/version.h>

namespace tessera {
namespace {

// python/tessera/_library.py reads this in the file before it loads it: under another PyTorch loading fails at some symbol.
[[maybe_unused, gnu::used]] const char kMadeFor[] = "tessera_ops for PyTorch " TORCH_VERSION;

[[maybe_unused]] const bool loaded = [] {
  register_operators();
  return true;
}();

}  // namespace
}  // namespace tessera
