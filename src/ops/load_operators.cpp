// The only source of libtessera_ops.so: torch.ops.load_library runs its initializer. A program that links Tessera
// statically registers the operators on their first use instead (the linker would drop an initializer there).
#include "src/ops/operators.h"

namespace tessera {
namespace {

[[maybe_unused]] const bool loaded = [] {
  register_operators();
  return true;
}();

}  // namespace
}  // namespace tessera
