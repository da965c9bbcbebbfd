#include "kernels/sparsify_group/sparsify_group.h"

#include <limits>

#include "kernels/argument_check.h"
#include "kernels/sparsify_group/configurations.h"

namespace tessera::kernels {
namespace {

ArgumentCheck check_problem(const SparsifyGroupProblem& problem) {
  ArgumentCheck found("sparsify_group");
  found.at_least("batch", 0, problem.batch).at_least("tokens", 0, problem.tokens);
  found.at_least("patches", 1, problem.patches).at_least("width", 1, problem.width);
  if (problem.weights == PatchWeights::kMinMax)
    found.require(problem.threshold >= 0.0f && problem.threshold <= 1.0f, "threshold",
                  " must be in [0, 1], but is " + std::to_string(problem.threshold));
  if (problem.weights == PatchWeights::kSoftmax)
    found.require(problem.softmax_temperature > 0.0f, "softmax_temperature",
                  " must be above 0, but is " + std::to_string(problem.softmax_temperature));
  return found;
}

/// Checks an output. If it has several rows, they must not overlap.
template <class Rows>
void check_output(ArgumentCheck& found, const char* name, const Rows& rows, std::int64_t count, std::int64_t width) {
  found.present(name, rows.data);
  if (count != 1) found.long_enough(name, rows.row_stride, width);
}

}  // namespace

std::vector<std::string> sparsify_group_configurations() {
  std::vector<std::string> names;
  for (const SparsifyGroupConfiguration& configuration : kSparsifyGroupConfigurations) names.emplace_back(configuration.name);
  for (const SparsifyGroupHopperConfiguration& configuration : kSparsifyGroupHopperConfigurations) names.emplace_back(configuration.name);
  return names;
}

std::size_t sparsify_group_block_memory(std::int64_t patches, DataType type) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const SparsifyGroupConfiguration& configuration : kSparsifyGroupConfigurations) {
    if (patches > configuration.patches()) continue;
    const SparsifyGroupSizes sizes(patches, type, Pass::kBackward, configuration, 1);  // the backward pass needs more than the forward pass
    least = std::min(least, std::max(sizes.similarity_bytes(1), sizes.product_bytes(1)));
  }
  return static_cast<std::size_t>(least);
}

Status check(const SparsifyGroupForward& arguments) {
  const SparsifyGroupProblem& problem = arguments.problem;
  ArgumentCheck found = check_problem(problem);
  if (!found.ok() || problem.batch == 0 || problem.tokens == 0) return found.status();
  found.present("text_tokens", arguments.text_tokens.data).present("image_tokens", arguments.image_tokens.data);
  check_output(found, "grouped", arguments.grouped, problem.tokens, problem.width);
  return found.status();
}

Status check(const SparsifyGroupBackward& arguments) {
  const SparsifyGroupProblem& problem = arguments.problem;
  ArgumentCheck found = check_problem(problem);
  if (!found.ok() || problem.batch == 0) return found.status();
  if (arguments.grad_image_tokens.data != nullptr)
    check_output(found, "grad_image_tokens", arguments.grad_image_tokens, problem.patches, problem.width);
  if (problem.tokens == 0) return found.status();
  if (arguments.grad_text_tokens.data != nullptr)
    check_output(found, "grad_text_tokens", arguments.grad_text_tokens, problem.tokens, problem.width);
  found.present("text_tokens", arguments.text_tokens.data).present("image_tokens", arguments.image_tokens.data);
  found.present("grad_grouped", arguments.grad_grouped.data).present("row_statistics", arguments.row_statistics);
  return found.status();
}

}  // namespace tessera::kernels
