#include <algorithm>
#include <vector>

#include "kernels/attention/attend_rows.h"
#include "kernels/attention/attention.h"
#include "kernels/cpu/instruction_set.h"

namespace tessera::kernels::cpu {
namespace {

const HeadKernels* head_kernels() {
#if defined(TESSERA_X86_KERNELS)
  if (instruction_set() == InstructionSet::kAvx512) return &kAvx512HeadKernels;
  if (instruction_set() == InstructionSet::kAvx2) return &kAvx2HeadKernels;
#endif
  return nullptr;
}

}  // namespace

bool has_attention() {
  return head_kernels() != nullptr;
}

Status attention_forward(const AttentionForward& arguments, const Parallel& parallel) {
  const AttentionProblem& problem = arguments.problem;
  const HeadKernels* const kernels = head_kernels();
  if (kernels == nullptr || problem.type != DataType::kFloat32) return Status::failure("attention: the CPU needs AVX2 and float32");
  const std::int64_t items = problem.sequences * problem.heads, width = problem.heads * problem.head_width;
  const auto floats = static_cast<std::size_t>(kernels->scratch(problem.longest, problem.head_width));
  std::vector<float> scratch(floats * static_cast<std::size_t>(thread_count(parallel, items)));
  for_each_item(parallel, items, [&](int thread, std::int64_t item) {
    const std::int64_t sequence = item / problem.heads, head = item % problem.heads;
    const std::int64_t first = problem.offsets == nullptr ? sequence * problem.longest : problem.offsets[sequence];
    const std::int64_t end = problem.offsets == nullptr ? first + problem.longest : problem.offsets[sequence + 1];
    if (first == end) return;
    const float* const query = static_cast<const float*>(arguments.qkv) + first * 3 * width + head * problem.head_width;
    float* const output = static_cast<float*>(arguments.output) + first * width + head * problem.head_width;
    kernels->attend({query, query + width, query + 2 * width, output, 3 * width, width, end - first, problem.head_width, problem.causal, problem.scale},
                    scratch.data() + floats * static_cast<std::size_t>(thread));
  });
  return {};
}

}  // namespace tessera::kernels::cpu
