// The source of libtessera_ops.so, whose initializer runs in torch.ops.load_library; it is part of libtessera.so too. A
// program that links Tessera statically registers the operators on first use instead (the linker would drop an
// initializer there).
#include "src/ops/operators.h"

#include <torch/version.h>

namespace tessera {
namespace {

// python/tessera/_library.py reads this text from the file before loading it, because with another PyTorch version
// loading fails at an arbitrary missing symbol.
[[maybe_unused, gnu::used]] const char kMadeFor[] = "tessera_ops for PyTorch " TORCH_VERSION;

[[maybe_unused]] const bool loaded = [] {
  register_operators();
  return true;
}();

}  // namespace
}  // namespace tessera
