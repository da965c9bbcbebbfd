// The initializer of libtessera_ops.so and libtessera.so, which runs when torch.ops.load_library loads the library. A
// program that links Tessera statically registers the operators on first use instead, because the linker would drop
// this initializer.
#include "src/ops/operators.h"

#include <torch/version.h>

namespace tessera {
namespace {

// python/tessera/_library.py reads this text from the library's file before it loads the library. With another PyTorch
// version, loading would fail with the name of some missing symbol, which explains nothing.
[[maybe_unused, gnu::used]] const char kMadeFor[] = "tessera_ops for PyTorch " TORCH_VERSION;

[[maybe_unused]] const bool loaded = [] {
  register_operators();
  return true;
}();

}  // namespace
}  // namespace tessera
