#include "kernels/max_similarity/max_similarity.h"

#include <string>

namespace tessera::kernels {
namespace {

Status between(const char* name, std::int64_t least, std::int64_t most, std::int64_t value) {
  if (value >= least && value <= most) return {};
  const bool low = value < least;
  return Status::failure(std::string("max_similarity: ") + name + " must be at " + (low ? "least " : "most ") +
                         std::to_string(low ? least : most) + ", but is " + std::to_string(value));
}

Status present(const char* name, const void* pointer) {
  return pointer != nullptr ? Status() : Status::failure(std::string("max_similarity: ") + name + " is a null pointer");
}

Status check(const MaxSimilarityProblem& problem) {
  constexpr std::int64_t kAny = INT64_MAX, kMostRows = MaxSimilarityProblem::kMostRows;
  if (Status status = between("images", 0, kAny, problem.images); !status.ok()) return status;
  if (Status status = between("patches", 1, kMostRows, problem.patches); !status.ok()) return status;
  if (Status status = between("texts", 0, kAny, problem.texts); !status.ok()) return status;
  if (Status status = between("tokens", 0, kMostRows, problem.tokens); !status.ok()) return status;
  return between("width", 1, kAny, problem.width);
}

/// If one side is empty there are no pairs, and nothing is read.
bool is_empty(const MaxSimilarityProblem& problem) {
  return problem.images == 0 || problem.texts == 0;
}

template <class Arguments>
Status check_inputs(const Arguments& arguments) {
  if (Status status = present("patches", arguments.patches); !status.ok()) return status;
  if (Status status = present("patch_keep", arguments.patch_keep); !status.ok()) return status;
  if (Status status = present("best_token", arguments.best_token); !status.ok()) return status;
  if (arguments.problem.tokens == 0) return {};
  if (Status status = present("tokens", arguments.tokens); !status.ok()) return status;
  if (Status status = present("token_keep", arguments.token_keep); !status.ok()) return status;
  return present("best_patch", arguments.best_patch);
}

}  // namespace

Status check(const MaxSimilarityForward& arguments) {
  if (Status status = check(arguments.problem); !status.ok() || is_empty(arguments.problem)) return status;
  if (Status status = check_inputs(arguments); !status.ok()) return status;
  if (Status status = present("i2t", arguments.i2t); !status.ok()) return status;
  return present("t2i", arguments.t2i);
}

Status check(const MaxSimilarityBackward& arguments) {
  if (Status status = check(arguments.problem); !status.ok() || is_empty(arguments.problem)) return status;
  if (Status status = check_inputs(arguments); !status.ok()) return status;
  if (Status status = present("grad_i2t", arguments.grad_i2t); !status.ok()) return status;
  return present("grad_t2i", arguments.grad_t2i);
}

}  // namespace tessera::kernels
