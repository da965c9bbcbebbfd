#include "kernels/token_max_projection/token_max_projection.h"

#include <string>

namespace tessera::kernels {
namespace {

Status at_least(const char* name, std::int64_t least, std::int64_t value) {
  if (value >= least) return {};
  return Status::failure(std::string("token_max_projection: ") + name + " must be at least " + std::to_string(least) +
                         ", but is " + std::to_string(value));
}

Status present(const char* name, const void* pointer) {
  return pointer != nullptr ? Status()
                            : Status::failure(std::string("token_max_projection: ") + name + " is a null pointer");
}

Status check(const TokenMaxProjectionProblem& problem) {
  if (Status status = at_least("batch", 0, problem.batch); !status.ok()) return status;
  if (Status status = at_least("positions", 1, problem.positions); !status.ok()) return status;
  if (Status status = at_least("vocabulary", 1, problem.vocabulary); !status.ok()) return status;
  return at_least("width", 1, problem.width);
}

}  // namespace

Status check(const TokenMaxProjectionForward& arguments) {
  if (Status status = check(arguments.problem); !status.ok() || arguments.problem.batch == 0) return status;
  if (Status status = present("tokens", arguments.tokens); !status.ok()) return status;
  if (Status status = present("table", arguments.table); !status.ok()) return status;
  if (Status status = present("bias", arguments.bias); !status.ok()) return status;
  if (Status status = present("encoding", arguments.encoding); !status.ok()) return status;
  return present("argmax", arguments.argmax);
}

Status check(const TokenMaxProjectionBackward& arguments) {
  if (Status status = check(arguments.problem); !status.ok() || arguments.problem.batch == 0) return status;
  if (Status status = present("tokens", arguments.tokens); !status.ok()) return status;
  if (Status status = present("table", arguments.table); !status.ok()) return status;
  if (Status status = present("argmax", arguments.argmax); !status.ok()) return status;
  return present("weight", arguments.weight);
}

}  // namespace tessera::kernels
