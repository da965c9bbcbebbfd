// Forward: Each thread takes one image after another and compares it with all texts. Backward: Threads process the
// images first and then the texts. So no two threads add to the same row, and sums have the same order for any number
// of threads.
#include <algorithm>
#include <vector>

#include "kernels/cpu/instruction_set.h"
#include "kernels/max_similarity/pair.h"

namespace tessera::kernels::cpu {
namespace {

const PairKernels& pair_kernels() {
#if defined(TESSERA_X86_KERNELS)
  if (instruction_set() == InstructionSet::kAvx512) return kAvx512PairKernels;
  if (instruction_set() == InstructionSet::kAvx2) return kAvx2PairKernels;
#endif
  return kPortablePairKernels;
}

/// The indices of the kept entries of each group of `size` entries.
class KeptLists {
 public:
  KeptLists(const std::uint8_t* keep, std::int64_t groups, std::int64_t size) : size_(size) {
    indices_.resize(groups * size);
    counts_.resize(groups);
    for (std::int64_t g = 0; g < groups; ++g) {
      std::int64_t& count = counts_[g];
      for (std::int64_t i = 0; i < size; ++i) {
        if (keep[g * size + i] != 0) indices_[g * size + count++] = static_cast<std::int32_t>(i);
      }
    }
  }
  const std::int32_t* of(std::int64_t group) const { return indices_.data() + group * size_; }
  std::int64_t count(std::int64_t group) const { return counts_[group]; }

 private:
  std::int64_t size_;
  std::vector<std::int32_t> indices_;
  std::vector<std::int64_t> counts_;
};

using Place = MaxSimilarityProblem::Place;

Status check_type(const MaxSimilarityProblem& problem) {
  if (problem.type == DataType::kFloat32) return {};
  return Status::failure("max_similarity: the CPU has only a float32 kernel");
}

/// One side of the backward pass. Either the `groups` are all images and the `others` all texts, or the reverse.
struct Side {
  const KeptLists* own;
  const KeptLists* other;
  std::int64_t groups, others, own_size, other_size, width;
  const float* other_rows;
  const Place *best_other, *best_own;          ///< best other row for each own row; best own row for each other row
  const float *own_gradient, *other_gradient;  ///< gradients of the similarities
  std::int64_t group_step, other_step;         ///< steps in [B, C]: to the next group, and to the next of the `others`
  float* gradient;
};

void add_side(const Side& side, const Parallel& parallel) {
  if (side.gradient == nullptr) return;
  const PairKernels& kernels = pair_kernels();
  for_each_item(parallel, side.groups, [&](int, std::int64_t group) {
    PairGradient pair;
    pair.width = side.width;
    pair.gradient = side.gradient + group * side.own_size * side.width;
    std::fill(pair.gradient, pair.gradient + side.own_size * side.width, 0.0f);
    pair.own_kept = side.own->of(group);
    pair.own_count = side.own->count(group);
    for (std::int64_t other = 0; other < side.others; ++other) {
      const std::int64_t place = group * side.group_step + other * side.other_step;
      pair.others = side.other_rows + other * side.other_size * side.width;
      pair.other_kept = side.other->of(other);
      pair.other_count = side.other->count(other);
      if (pair.own_count == 0 || pair.other_count == 0) continue;
      pair.best_other = side.best_other + place * side.own_size;
      pair.best_own = side.best_own + place * side.other_size;
      pair.own_weight = side.own_gradient[place] / static_cast<float>(pair.own_count);
      pair.other_weight = side.other_gradient[place] / static_cast<float>(pair.other_count);
      kernels.backward(pair);
    }
  });
}

}  // namespace

Status max_similarity_forward(const MaxSimilarityForward& arguments, const Parallel& parallel) {
  const MaxSimilarityProblem& problem = arguments.problem;
  if (Status status = check(arguments); !status.ok()) return status;
  if (Status status = check_type(problem); !status.ok() || problem.images == 0 || problem.texts == 0) return status;
  const float* const all_patches = static_cast<const float*>(arguments.patches);
  const float* const all_tokens = static_cast<const float*>(arguments.tokens);
  const PairKernels& kernels = pair_kernels();
  const KeptLists patches(arguments.patch_keep, problem.images, problem.patches);
  const KeptLists tokens(arguments.token_keep, problem.texts, problem.tokens);
  constexpr std::int64_t kAlignment = 16;  // number of floats in a cache line
  const std::int64_t panel_floats = (kernels.panel_floats(problem) + kAlignment - 1) / kAlignment * kAlignment;
  const std::int64_t thread_floats = panel_floats + kernels.pair_floats(problem) + kAlignment;
  std::vector<float> scratch(thread_floats * thread_count(parallel, problem.images));
  for_each_item(parallel, problem.images, [&](int thread, std::int64_t index) {
    PackedImage image;
    image.width = problem.width;
    image.patches = all_patches + index * problem.patches * problem.width;
    image.kept = patches.of(index);
    image.kept_count = patches.count(index);
    image.panels = scratch.data() + thread * thread_floats;
    if (image.kept_count > 0) kernels.pack(image);
    for (std::int64_t text = 0; text < problem.texts; ++text) {
      const std::int64_t place = index * problem.texts + text;
      PairForward pair;
      pair.image = &image;
      pair.tokens = all_tokens + text * problem.tokens * problem.width;
      pair.kept = tokens.of(text);
      pair.kept_count = tokens.count(text);
      pair.i2t = arguments.i2t + place;
      pair.t2i = arguments.t2i + place;
      pair.best_token = arguments.best_token + place * problem.patches;
      pair.best_patch = arguments.best_patch + place * problem.tokens;
      pair.scratch = image.panels + panel_floats;
      std::fill_n(pair.best_token, problem.patches, Place{0});
      std::fill_n(pair.best_patch, problem.tokens, Place{0});
      *pair.i2t = *pair.t2i = 0.0f;
      if (image.kept_count > 0 && pair.kept_count > 0) kernels.forward(pair);
    }
  });
  return {};
}

Status max_similarity_backward(const MaxSimilarityBackward& arguments, const Parallel& parallel) {
  const MaxSimilarityProblem& problem = arguments.problem;
  if (Status status = check(arguments); !status.ok()) return status;
  if (Status status = check_type(problem); !status.ok()) return status;
  float* const grad_patches = static_cast<float*>(arguments.grad_patches);
  float* const grad_tokens = static_cast<float*>(arguments.grad_tokens);
  if (problem.images == 0 || problem.texts == 0) {
    const auto clear = [](float* to, std::int64_t count) {
      if (to != nullptr) std::fill(to, to + count, 0.0f);
    };
    clear(grad_patches, problem.images * problem.patches * problem.width);
    clear(grad_tokens, problem.texts * problem.tokens * problem.width);
    return {};
  }
  const KeptLists patches(arguments.patch_keep, problem.images, problem.patches);
  const KeptLists tokens(arguments.token_keep, problem.texts, problem.tokens);
  add_side({&patches, &tokens, problem.images, problem.texts, problem.patches, problem.tokens, problem.width,
            static_cast<const float*>(arguments.tokens), arguments.best_token, arguments.best_patch, arguments.grad_i2t,
            arguments.grad_t2i, problem.texts, 1, grad_patches},
           parallel);
  add_side({&tokens, &patches, problem.texts, problem.images, problem.tokens, problem.patches, problem.width,
            static_cast<const float*>(arguments.patches), arguments.best_patch, arguments.best_token,
            arguments.grad_t2i, arguments.grad_i2t, 1, problem.texts, grad_tokens},
           parallel);
  return {};
}

}  // namespace tessera::kernels::cpu
