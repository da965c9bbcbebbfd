#include "kernels/linear_cross_entropy/linear_cross_entropy.h"

#include <string>

namespace tessera::kernels {
namespace {

Status at_least(const char* name, std::int64_t least, std::int64_t value) {
  if (value >= least) return {};
  return Status::failure(std::string("linear_cross_entropy: ") + name + " must be at least " + std::to_string(least) +
                         ", but is " + std::to_string(value));
}

Status present(const char* name, const void* pointer) {
  return pointer != nullptr ? Status()
                            : Status::failure(std::string("linear_cross_entropy: ") + name + " is a null pointer");
}

}  // namespace

Status check(const CrossEntropyTile& arguments) {
  if (Status status = at_least("rows", 0, arguments.rows); !status.ok()) return status;
  if (Status status = at_least("columns", 1, arguments.columns); !status.ok()) return status;
  if (Status status = at_least("places", 1, arguments.places); !status.ok() || arguments.rows == 0) return status;
  if (Status status = present("logits", arguments.logits); !status.ok()) return status;
  if (Status status = present("targets", arguments.targets); !status.ok()) return status;
  return present("losses", arguments.losses);
}

}  // namespace tessera::kernels
