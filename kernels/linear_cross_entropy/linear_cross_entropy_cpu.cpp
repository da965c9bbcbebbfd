// A thread processes one row after another. With a vocabulary of the usual size, a row fits in a core's L2 cache. Its logits are
// then read from memory only once, and its gradient is written only once.
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

/// The target columns of a row, the sum of their weights, and the sum of weight * logit over them.
struct Target {
  const std::int64_t* columns;
  const float* weights;  // null if all are 1
  std::int64_t places;
  float weight = 0.0f, logit = 0.0f;
  bool any = false;

  Target(const CrossEntropyTile& arguments, std::int64_t row, const float* logits)
      : columns(arguments.targets + row * arguments.places),
        weights(arguments.weights == nullptr ? nullptr : arguments.weights + row * arguments.places),
        places(arguments.places) {
    for_each_place([&](std::int64_t column, float of_place) {
      weight += of_place;
      logit += of_place * logits[column];
      any = true;
    });
  }

  template <class F>
  void for_each_place(F&& f) const {
    for (std::int64_t place = 0; place < places; ++place)
      if (columns[place] >= 0) f(columns[place], weights == nullptr ? 1.0f : weights[place]);
  }
};

void finish_row(const CrossEntropyTile& arguments, std::int64_t row) {
  const std::int64_t start = row * arguments.row_pitch();
  const float* const logits = static_cast<const float*>(arguments.logits) + start;
  float* const gradient = arguments.gradient == nullptr ? nullptr : static_cast<float*>(arguments.gradient) + start;
  const Target target(arguments, row, logits);  // must be computed before the gradient overwrites the logits
  if (!target.any) {
    arguments.losses[row] = 0.0f;
    if (gradient != nullptr) std::fill(gradient, gradient + arguments.columns, 0.0f);
    return;
  }
  const float normalizer = softmax_row().log_sum_exp(logits, arguments.columns, gradient, target.weight);
  arguments.losses[row] = target.weight * normalizer - target.logit;
  if (gradient != nullptr)
    target.for_each_place([&](std::int64_t column, float weight) { gradient[column] -= weight; });
}

}  // namespace

Status cross_entropy_tile(const CrossEntropyTile& arguments, const Parallel& parallel) {
  if (Status status = check(arguments); !status.ok() || arguments.rows == 0) return status;
  if (arguments.type != DataType::kFloat32) {
    return Status::failure("linear_cross_entropy: the CPU has only a float32 kernel");
  }
  for_each_item(parallel, arguments.rows, [&](int, std::int64_t row) { finish_row(arguments, row); });
  return {};
}

}  // namespace tessera::kernels::cpu
