// The source of libtessera_ops.so, which is also part of libtessera.so. Its initializer runs when
// torch.ops.load_library loads the library. A program that links Tessera statically registers the operators on first
// use instead, because the linker would drop this initializer.
#include "src/ops/operators.h"

#include <torch/version.h>

namespace tessera {
namespace {

// python/tessera/_library.py reads this text from the library's file before loading it, because with another PyTorch
// version loading would fail with an arbitrary missing symbol.
[[maybe_unused, gnu::used]] const char kMadeFor[] = "tessera_ops for PyTorch " TORCH_VERSION;

[[maybe_unused]] const bool loaded = [] {
  register_operators();
  return true;
}();

}  // namespace
}  // namespace tessera
