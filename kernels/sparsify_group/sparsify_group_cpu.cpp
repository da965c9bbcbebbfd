// Each thread processes one pair after another. A pair's tokens, its [P, tokens] tile and its gradients stay in the
// core's second-level cache. Computing each step for the whole batch, as composed operations do, is slower, because an
// array [B, L, P] then goes through memory a dozen times.
#include <cstring>

#include "kernels/cpu/instruction_set.h"
#include "kernels/sparsify_group/sample.h"

namespace tessera::kernels::cpu {
namespace {

const SampleKernels& sample_kernels() {
#if defined(TESSERA_X86_KERNELS)
  if (instruction_set() == InstructionSet::kAvx512) return kAvx512SampleKernels;
  if (instruction_set() == InstructionSet::kAvx2) return kAvx2SampleKernels;
#endif
  return kPortableSampleKernels;
}

constexpr std::size_t kAlignment = 64;

/// Returns the size in bytes of a thread's list of real tokens. thread_bytes() returns the sum of this size and the
/// size of the thread's scratch memory.
std::size_t list_bytes(const SparsifyGroupProblem& problem) {
  return (static_cast<std::size_t>(problem.tokens) * sizeof(std::int32_t) + kAlignment - 1) / kAlignment * kAlignment;
}
std::size_t thread_bytes(const SparsifyGroupProblem& problem, Pass pass) {
  const std::size_t floats = static_cast<std::size_t>(sample_kernels().scratch_floats(problem, pass)) * sizeof(float);
  return list_bytes(problem) + (floats + kAlignment - 1) / kAlignment * kAlignment;
}

/// The caller's workspace, divided among the threads.
class Workspace {
 public:
  Workspace(void* given, const SparsifyGroupProblem& problem, Pass pass)
      : problem_(problem), stride_(thread_bytes(problem, pass)) {
    const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(given);
    base_ = reinterpret_cast<char*>((address + kAlignment - 1) / kAlignment * kAlignment);
  }
  std::int32_t* list(int thread) const { return reinterpret_cast<std::int32_t*>(base_ + stride_ * thread); }
  float* scratch(int thread) const { return reinterpret_cast<float*>(base_ + stride_ * thread + list_bytes(problem_)); }

 private:
  const SparsifyGroupProblem& problem_;
  std::size_t stride_;
  char* base_;
};

std::int64_t list_real_tokens(const std::uint8_t* mask, std::int64_t tokens, std::int32_t* list) {
  std::int64_t count = 0;
  for (std::int64_t token = 0; token < tokens; ++token) {
    if (mask == nullptr || mask[token] != 0) list[count++] = static_cast<std::int32_t>(token);
  }
  return count;
}

ConstRows pair_of(const ConstRows& rows, std::int64_t pair, DataType type) {
  return {static_cast<const char*>(rows.data) + pair * rows.batch_stride * static_cast<std::int64_t>(size_of(type)), 0,
          rows.row_stride};
}
Rows pair_of(const Rows& rows, std::int64_t pair, DataType type) {
  if (rows.data == nullptr) return {};
  return {static_cast<char*>(rows.data) + pair * rows.batch_stride * static_cast<std::int64_t>(size_of(type)), 0,
          rows.row_stride};
}

void zero_rows(const Rows& rows, std::int64_t count, const std::uint8_t* keep, std::int64_t width, DataType type) {
  if (rows.data == nullptr) return;
  for (std::int64_t row = 0; row < count; ++row) {
    if (keep != nullptr && keep[row] != 0) continue;
    std::memset(static_cast<char*>(rows.data) + row * rows.row_stride * static_cast<std::int64_t>(size_of(type)), 0,
                width * size_of(type));
  }
}

void zero_rows(float* data, std::int64_t count, const std::uint8_t* keep, std::int64_t width) {
  zero_rows(Rows{data, 0, width}, count, keep, width, DataType::kFloat32);
}

const std::uint8_t* mask_of(const std::uint8_t* mask, std::int64_t pair, std::int64_t tokens) {
  return mask == nullptr ? nullptr : mask + pair * tokens;
}

float* offset(float* data, std::int64_t elements) {
  return data == nullptr ? nullptr : data + elements;
}

}  // namespace

std::size_t sparsify_group_workspace(const SparsifyGroupProblem& problem, Pass pass, const Parallel& parallel) {
  if (problem.batch <= 0 || problem.tokens < 0 || problem.patches < 1 || problem.width < 1) return 0;
  return thread_bytes(problem, pass) * thread_count(parallel, problem.batch) + kAlignment;
}

Status sparsify_group_forward(const SparsifyGroupForward& arguments, const Parallel& parallel) {
  const SparsifyGroupProblem& problem = arguments.problem;
  if (Status status = check(arguments); !status.ok() || problem.batch == 0 || problem.tokens == 0) return status;
  if (arguments.workspace == nullptr) return Status::failure("sparsify_group: workspace is a null pointer");
  const Workspace workspace(arguments.workspace, problem, Pass::kForward);
  for_each_item(parallel, problem.batch, [&](int thread, std::int64_t pair) {
    ForwardSample sample;
    sample.problem = &problem;
    sample.text_tokens = pair_of(arguments.text_tokens, pair, problem.type);
    sample.image_tokens = pair_of(arguments.image_tokens, pair, problem.type);
    sample.grouped = pair_of(arguments.grouped, pair, problem.type);
    sample.row_statistics = offset(arguments.row_statistics, pair * problem.tokens * kRowStatistics);
    sample.weights = offset(arguments.weights, pair * problem.tokens * problem.patches);
    sample.real_tokens = workspace.list(thread);
    sample.scratch = workspace.scratch(thread);
    const std::uint8_t* const mask = mask_of(arguments.text_mask, pair, problem.tokens);
    sample.real_count = list_real_tokens(mask, problem.tokens, workspace.list(thread));
    if (sample.real_count < problem.tokens) {
      zero_rows(sample.grouped, problem.tokens, mask, problem.width, problem.type);
      zero_rows(sample.row_statistics, problem.tokens, mask, kRowStatistics);
      zero_rows(sample.weights, problem.tokens, mask, problem.patches);
    }
    sample_kernels().forward(sample);
  });
  return {};
}

Status sparsify_group_backward(const SparsifyGroupBackward& arguments, const Parallel& parallel) {
  const SparsifyGroupProblem& problem = arguments.problem;
  if (Status status = check(arguments); !status.ok() || problem.batch == 0) return status;
  if (arguments.workspace == nullptr) return Status::failure("sparsify_group: workspace is a null pointer");
  const Workspace workspace(arguments.workspace, problem, Pass::kBackward);
  for_each_item(parallel, problem.batch, [&](int thread, std::int64_t pair) {
    BackwardSample sample;
    sample.problem = &problem;
    sample.text_tokens = pair_of(arguments.text_tokens, pair, problem.type);
    sample.image_tokens = pair_of(arguments.image_tokens, pair, problem.type);
    sample.grad_grouped = pair_of(arguments.grad_grouped, pair, problem.type);
    sample.row_statistics = arguments.row_statistics + pair * problem.tokens * kRowStatistics;
    sample.grad_text_tokens = pair_of(arguments.grad_text_tokens, pair, problem.type);
    sample.grad_image_tokens = pair_of(arguments.grad_image_tokens, pair, problem.type);
    sample.real_tokens = workspace.list(thread);
    sample.scratch = workspace.scratch(thread);
    const std::uint8_t* const mask = mask_of(arguments.text_mask, pair, problem.tokens);
    sample.real_count = list_real_tokens(mask, problem.tokens, workspace.list(thread));
    if (sample.real_count < problem.tokens) {
      zero_rows(sample.grad_text_tokens, problem.tokens, mask, problem.width, problem.type);
    }
    if (sample.real_count == 0) {
      zero_rows(sample.grad_image_tokens, problem.patches, nullptr, problem.width, problem.type);
      return;
    }
    sample_kernels().backward(sample);
  });
  return {};
}

}  // namespace tessera::kernels::cpu
