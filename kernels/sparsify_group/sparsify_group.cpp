#include "kernels/sparsify_group/sparsify_group.h"

#include <initializer_list>
#include <string>

namespace tessera::kernels {
namespace {

std::string at_least(const char* name, std::int64_t least, std::int64_t value) {
  return std::string("sparsify_group: ") + name + " must be at least " + std::to_string(least) + ", but is " +
         std::to_string(value);
}

/// Returns an empty string if the problem is valid.
std::string problem_error(const SparsifyGroupProblem& problem) {
  if (problem.batch < 0) return at_least("batch", 0, problem.batch);
  if (problem.tokens < 0) return at_least("tokens", 0, problem.tokens);
  if (problem.patches < 1) return at_least("patches", 1, problem.patches);
  if (problem.width < 1) return at_least("width", 1, problem.width);
  if (problem.weights == PatchWeights::kMinMax && !(problem.threshold >= 0.0f && problem.threshold <= 1.0f)) {
    return "sparsify_group: threshold must be in [0, 1], but is " + std::to_string(problem.threshold);
  }
  if (problem.weights == PatchWeights::kSoftmax && !(problem.softmax_temperature > 0.0f)) {
    return "sparsify_group: softmax_temperature must be above 0, but is " + std::to_string(problem.softmax_temperature);
  }
  return {};
}

/// Returns an empty string if `data` (of a non-empty matrix) is not null and its rows do not overlap.
std::string rows_error(const char* name, const void* data, std::int64_t row_stride, std::int64_t width,
                       bool may_overlap) {
  if (data == nullptr) return std::string("sparsify_group: ") + name + " is a null pointer";
  if (!may_overlap && row_stride < width) {
    return std::string("sparsify_group: the row stride of ") + name + " is " + std::to_string(row_stride) +
           ", shorter than a row of " + std::to_string(width) + " elements";
  }
  return {};
}

Status first_error(std::initializer_list<std::string> errors) {
  for (const std::string& error : errors) {
    if (!error.empty()) return Status::failure(error);
  }
  return {};
}

}  // namespace

Status check(const SparsifyGroupForward& arguments) {
  const SparsifyGroupProblem& problem = arguments.problem;
  const std::string error = problem_error(problem);
  if (!error.empty() || problem.batch == 0 || problem.tokens == 0) return first_error({error});
  return first_error({
      rows_error("text_tokens", arguments.text_tokens.data, arguments.text_tokens.row_stride, problem.width, true),
      rows_error("image_tokens", arguments.image_tokens.data, arguments.image_tokens.row_stride, problem.width, true),
      rows_error("grouped", arguments.grouped.data, arguments.grouped.row_stride, problem.width, problem.tokens == 1),
  });
}

Status check(const SparsifyGroupBackward& arguments) {
  const SparsifyGroupProblem& problem = arguments.problem;
  const std::string error = problem_error(problem);
  if (!error.empty() || problem.batch == 0) return first_error({error});
  if (arguments.grad_image_tokens.data != nullptr) {
    const Status status =
        first_error({rows_error("grad_image_tokens", arguments.grad_image_tokens.data,
                                arguments.grad_image_tokens.row_stride, problem.width, problem.patches == 1)});
    if (!status.ok()) return status;
  }
  if (problem.tokens == 0) return {};
  if (arguments.grad_text_tokens.data != nullptr) {
    const Status status =
        first_error({rows_error("grad_text_tokens", arguments.grad_text_tokens.data,
                                arguments.grad_text_tokens.row_stride, problem.width, problem.tokens == 1)});
    if (!status.ok()) return status;
  }
  return first_error({
      rows_error("text_tokens", arguments.text_tokens.data, arguments.text_tokens.row_stride, problem.width, true),
      rows_error("image_tokens", arguments.image_tokens.data, arguments.image_tokens.row_stride, problem.width, true),
      rows_error("grad_grouped", arguments.grad_grouped.data, arguments.grad_grouped.row_stride, problem.width, true),
      arguments.row_statistics == nullptr ? "sparsify_group: row_statistics is a null pointer" : "",
  });
}

}  // namespace tessera::kernels
