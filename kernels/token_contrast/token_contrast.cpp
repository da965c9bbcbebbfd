#include "kernels/token_contrast/token_contrast.h"

#include "kernels/argument_check.h"
#include "kernels/token_contrast/plan.h"

namespace tessera::kernels {
namespace {

template <class Arguments>
ArgumentCheck check_inputs(const Arguments& arguments) {
  const TokenContrastProblem& problem = arguments.problem;
  ArgumentCheck found("token_contrast");
  found.at_least("batch", 0, problem.batch).at_least("tokens", 1, problem.tokens);
  found.at_most("tokens", kMostContrastTokens, problem.tokens).at_least("width", 1, problem.width);
  if (!found.ok() || problem.batch == 0) return found;
  found.present("queries", arguments.queries.data).present("keys", arguments.keys.data).present("scale", arguments.scale);
  return found.long_enough("queries", arguments.queries.row_stride, problem.width)
      .long_enough("keys", arguments.keys.row_stride, problem.width);
}

}  // namespace

Status check(const TokenContrastForward& arguments) {
  ArgumentCheck found = check_inputs(arguments);
  if (arguments.problem.batch == 0) return found.status();
  return found.present("losses", arguments.losses).status();
}

Status check(const TokenContrastBackward& arguments) {
  ArgumentCheck found = check_inputs(arguments);
  if (arguments.problem.batch == 0) return found.status();
  found.present("grad_losses", arguments.grad_losses).present("grad_scale", arguments.grad_scale);
  found.present("grad_queries", arguments.grad_queries.data).present("grad_keys", arguments.grad_keys.data);
  return found.long_enough("grad_queries", arguments.grad_queries.row_stride, arguments.problem.width)
      .long_enough("grad_keys", arguments.grad_keys.row_stride, arguments.problem.width)
      .status();
}

std::size_t token_contrast_block_memory(std::int64_t tokens, DataType type) {
  return contrast_plan_within(tokens, type, Pass::kBackward, 0).bytes;
}

}  // namespace tessera::kernels
