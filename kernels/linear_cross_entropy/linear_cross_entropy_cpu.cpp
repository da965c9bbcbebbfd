// A thread takes a row after the other. A row of a usual vocabulary fits into a core's second-level cache, so that it
// comes from memory once and returns once, as its gradient.
#include <algorithm>

#include "kernels/cpu/instruction_set.h"
#include "kernels/linear_cross_entropy/linear_cross_entropy.h"
#include "kernels/linear_cross_entropy/softmax_row.h"

namespace tessera::kernels::cpu {
namespace {

const SoftmaxRow& softmax_row() {
#if defined(TESSERA_X86_KERNELS)
  if (instruction_set() == InstructionSet::kAvx512) return kAvx512SoftmaxRow;
  if (instruction_set() == InstructionSet::kAvx2) return kAvx2SoftmaxRow;
#endif
  return kPortableSoftmaxRow;
}

void finish_row(const CrossEntropyTile& arguments, std::int64_t row) {
  const std::int64_t target = arguments.targets[row];
  const float* const logits = arguments.logits + row * arguments.columns;
  float* const gradient =
      arguments.gradient == nullptr ? nullptr : static_cast<float*>(arguments.gradient) + row * arguments.columns;
  if (target < 0) {
    arguments.losses[row] = 0.0f;
    if (gradient != nullptr) std::fill(gradient, gradient + arguments.columns, 0.0f);
    return;
  }
  const float of_target = logits[target];  // the gradient may take its place
  arguments.losses[row] = softmax_row().log_sum_exp(logits, arguments.columns, gradient) - of_target;
  if (gradient != nullptr) gradient[target] -= 1.0f;
}

}  // namespace

Status cross_entropy_tile(const CrossEntropyTile& arguments, const Parallel& parallel) {
  if (Status status = check(arguments); !status.ok() || arguments.rows == 0) return status;
  if (arguments.type != DataType::kFloat32) {
    return Status::failure("linear_cross_entropy: the CPU has a float32 kernel alone");
  }
  for_each_item(parallel, arguments.rows, [&](int, std::int64_t row) { finish_row(arguments, row); });
  return {};
}

}  // namespace tessera::kernels::cpu
