// Backward, on all GPUs: sums the rows at the positions of the maxima. Runs once for the patches and, with the roles exchanged, once for
// the tokens. There are no atomics. Every sum belongs to one warp, which adds in the order of the batch, so that results are the same in
// every run. A block of 16 warps processes 256 rows of one image (or text) and 64 columns, two per lane. It loops over all texts (or
// images). A warp owns every sixteenth row. Each row chooses the other side's row at the position of its maximum. The gradient of a row
// r therefore has two parts. The first part sums the rows that r chose, in registers. The second part sums the rows that chose r. A warp
// reads the choices of 32 rows of the other side at a time. It learns only from these choices to which r it adds each of the 32 rows, so
// the sums are in shared memory. The other side's rows come from the caches, because all warps of a block read the same text at about
// the same time.
#include <algorithm>

#include "kernels/device/current_device.h"
#include "kernels/device/pairs.h"
#include "kernels/max_similarity/backward.h"

namespace tessera::kernels {
namespace {

using Place = MaxSimilarityProblem::Place;

constexpr int kWarps = 16;
constexpr int kThreads = 32 * kWarps;
constexpr int kWarpRows = 16;
constexpr int kBlockRows = kWarps * kWarpRows;
constexpr int kColumns = 64;

/// The arguments for one side. Either a group is an image and the `others` are all texts, or a group is a text and the
/// `others` are all images. `own` refers to the rows of a group, and `other` to the rows of the `others`.
template <class Element>
struct SideArguments {
  std::int64_t others;
  std::int64_t group_step, other_step;  // strides of a [B, C] tensor: from group to group, and from one of the `others` to the next
  int own_size, other_size, width;
  bool paired;  // rows may be read two columns at a time
  const Element* other_rows;
  const std::uint8_t *own_keep, *other_keep;
  const float *own_counts, *other_counts;
  // best_other [pairs, own_size] is each own row's best other row. best_own [pairs, other_size] is each other row's best own row.
  const Place *best_other, *best_own;
  const float *own_gradient, *other_gradient;  // gradients of the similarities
  Element* gradient;
};

/// Counts the kept rows of each group, one warp per group.
__global__ void __launch_bounds__(32) count_kept(const std::uint8_t* keep, int size, float* counts) {
  const std::uint8_t* const own = keep + static_cast<std::int64_t>(blockIdx.x) * size;
  float count = 0.0f;
  for (int row = threadIdx.x; row < size; row += 32) count += own[row] != 0 ? 1.0f : 0.0f;
  count = warp_sum(count);
  if (threadIdx.x == 0) counts[blockIdx.x] = count;
}

template <class Element>
__global__ void __launch_bounds__(kThreads) add_rows(SideArguments<Element> arguments) {
  TESSERA_DYNAMIC_SHARED(memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, width = arguments.width;
  const std::int64_t group = blockIdx.x;
  const int column = static_cast<int>(blockIdx.y) * kColumns + 2 * lane;
  const int first = static_cast<int>(blockIdx.z) * kBlockRows;
  const int left = arguments.own_size - first, own_rows = left < kBlockRows ? left : kBlockRows;
  float2* const chosen_sums = reinterpret_cast<float2*>(memory) + lane;  // [own_rows, kColumns / 2]
  for (int row = warp; row < own_rows; row += kWarps) chosen_sums[row * 32] = {0.0f, 0.0f};
  float2 sums[kWarpRows];
#pragma unroll
  for (int i = 0; i < kWarpRows; ++i) sums[i] = {0.0f, 0.0f};

  const int my_row = first + warp + kWarps * lane;  // lane i holds the index of the warp's row i
  const bool is_kept =
      lane < kWarpRows && my_row < arguments.own_size && arguments.own_keep[group * arguments.own_size + my_row] != 0;
  const float own_count = arguments.others > 0 ? arguments.own_counts[group] : 0.0f;
  for (std::int64_t other = 0; other < arguments.others && own_count > 0.0f; ++other) {
    const float other_count = arguments.other_counts[other];
    if (other_count == 0.0f) continue;
    const std::int64_t place = group * arguments.group_step + other * arguments.other_step;
    const Element* const rows = arguments.other_rows + other * arguments.other_size * width;
    const float own_weight = arguments.own_gradient[place] / own_count;
    const float other_weight = arguments.other_gradient[place] / other_count;
    if (own_weight != 0.0f) {
      const int best = is_kept ? arguments.best_other[place * arguments.own_size + my_row] : -1;
#pragma unroll
      for (int i = 0; i < kWarpRows; ++i) {
        const int row = __shfl_sync(kAllLanes, best, i);
        if (row < 0) continue;
        const float2 values = load_pair(rows + static_cast<std::int64_t>(row) * width, column, width, arguments.paired);
        sums[i].x = fmaf(own_weight, values.x, sums[i].x);
        sums[i].y = fmaf(own_weight, values.y, sums[i].y);
      }
    }
    for (int row0 = 0; row0 < arguments.other_size && other_weight != 0.0f; row0 += 32) {
      const int row = row0 + lane;
      const bool chooses = row < arguments.other_size && arguments.other_keep[other * arguments.other_size + row] != 0;
      const int best = chooses ? arguments.best_own[place * arguments.other_size + row] - first : -1;
      const bool mine = best >= 0 && best < own_rows && best % kWarps == warp;
      for_each_lane(__ballot_sync(kAllLanes, mine ? 1 : 0), [&](int chooser) {
        const float2 values =
            load_pair(rows + static_cast<std::int64_t>(row0 + chooser) * width, column, width, arguments.paired);
        float2& sum = chosen_sums[__shfl_sync(kAllLanes, best, chooser) * 32];
        sum.x = fmaf(other_weight, values.x, sum.x);
        sum.y = fmaf(other_weight, values.y, sum.y);
      });
    }
  }
#pragma unroll
  for (int i = 0; i < kWarpRows; ++i) {
    const int row = warp + kWarps * i;
    if (row >= own_rows) continue;
    const float2 chosen = chosen_sums[row * 32];
    store_pair(arguments.gradient + (group * arguments.own_size + first + row) * width, column, width,
               sums[i].x + chosen.x, sums[i].y + chosen.y);
  }
}

Status count(const std::uint8_t* keep, std::int64_t groups, std::int64_t size, float* counts, void* stream) {
  return launch("max_similarity backward", count_kept, dim3(static_cast<unsigned>(groups)), 32, 0, stream, keep,
                static_cast<int>(size), counts);
}

template <class Element>
Status add_side(const SideArguments<Element>& arguments, std::int64_t groups, void* stream) {
  if (arguments.gradient == nullptr || groups == 0 || arguments.own_size == 0) return {};
  const auto pieces = [](int whole, int piece) { return static_cast<unsigned>((whole + piece - 1) / piece); };
  const dim3 grid(static_cast<unsigned>(groups), pieces(arguments.width, kColumns),
                  pieces(arguments.own_size, kBlockRows));
  const std::size_t rows = static_cast<std::size_t>(std::min(arguments.own_size, kBlockRows));
  return launch("max_similarity backward", add_rows<Element>, grid, kThreads, rows * kColumns * sizeof(float), stream,
                arguments);
}

template <class Element>
Status start(const MaxSimilarityBackward& given, void* stream) {
  const MaxSimilarityProblem& problem = given.problem;
  if (std::max(problem.images, problem.texts) > kMostBlocks)
    return Status::failure("max_similarity: the batch is too large for one launch");
  // Without images or texts there are no pairs, so the kernels do not read the counts, and the counts are not computed.
  const bool pairs = problem.images > 0 && problem.texts > 0;
  float* const patch_counts = static_cast<float*>(given.workspace);
  float* const token_counts = patch_counts + problem.images;
  if (pairs) {
    if (Status status = count(given.patch_keep, problem.images, problem.patches, patch_counts, stream); !status.ok())
      return status;
    if (Status status = count(given.token_keep, problem.texts, problem.tokens, token_counts, stream); !status.ok())
      return status;
  }
  SideArguments<Element> images;
  images.others = problem.texts;
  images.group_step = problem.texts;
  images.other_step = 1;
  images.own_size = static_cast<int>(problem.patches);
  images.other_size = static_cast<int>(problem.tokens);
  images.width = static_cast<int>(problem.width);
  images.paired = rows_of_pairs<Element>(given.tokens, problem.width);
  images.other_rows = static_cast<const Element*>(given.tokens);
  images.own_keep = given.patch_keep;
  images.other_keep = given.token_keep;
  images.own_counts = patch_counts;
  images.other_counts = token_counts;
  images.best_other = given.best_token;
  images.best_own = given.best_patch;
  images.own_gradient = given.grad_i2t;
  images.other_gradient = given.grad_t2i;
  images.gradient = static_cast<Element*>(given.grad_patches);
  if (Status status = add_side(images, problem.images, stream); !status.ok()) return status;

  SideArguments<Element> texts = images;
  texts.others = problem.images;
  std::swap(texts.group_step, texts.other_step);
  std::swap(texts.own_size, texts.other_size);
  texts.paired = rows_of_pairs<Element>(given.patches, problem.width);
  texts.other_rows = static_cast<const Element*>(given.patches);
  std::swap(texts.own_keep, texts.other_keep);
  std::swap(texts.own_counts, texts.other_counts);
  std::swap(texts.best_other, texts.best_own);
  std::swap(texts.own_gradient, texts.other_gradient);
  texts.gradient = static_cast<Element*>(given.grad_tokens);
  return add_side(texts, problem.texts, stream);
}

}  // namespace

namespace TESSERA_DEVICE_NAMESPACE {

Status max_similarity_backward(const MaxSimilarityBackward& arguments, void* stream) {
  if (Status status = check(arguments); !status.ok()) return status;
  const bool pairs = arguments.problem.images > 0 && arguments.problem.texts > 0;
  if (pairs && arguments.workspace == nullptr) return Status::failure("max_similarity: workspace is a null pointer");
  const auto aligned = [](const void* rows) { return reinterpret_cast<std::uintptr_t>(rows) % 16 == 0; };
  if (takes_hopper_gradients(arguments.problem, current_device()) && aligned(arguments.grad_patches) && aligned(arguments.grad_tokens)) {
    return max_similarity_backward_hopper(arguments, stream);
  }
  if (pairs && arguments.problem.configuration != nullptr && std::strcmp(arguments.problem.configuration, "gather") != 0) {
    return cannot_process(arguments.problem);
  }
  return arguments.problem.type == DataType::kBfloat16 ? start<Bfloat16>(arguments, stream)
                                                       : start<float>(arguments, stream);
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
