// This kernel is memory-bound. A block processes a row. Its threads read the logits, four at a time if the alignment
// of the rows allows. Each thread keeps a running maximum of its logits, and the sum of exp(logit - maximum). To write
// the gradient, the threads read the row again, now from the L2 cache.
#include "kernels/device/primitives.h"
#include "kernels/linear_cross_entropy/linear_cross_entropy.h"

namespace tessera::kernels {
namespace {

constexpr int kThreads = 512;
constexpr float kLowest = -3.4028235e38f;  // initial value of a running maximum; -infinity would lead to NaN

/// The maximum of some values and the sum of exp(value - maximum).
struct MaximumAndSum {
  float maximum, sum;
};

/// Combines the values of all threads of the block. Every thread gets the result.
__device__ __forceinline__ MaximumAndSum over_block(MaximumAndSum mine) {
  __shared__ MaximumAndSum of_warps[kThreads / 32];
  const float of_warp = warp_maximum(mine.maximum);
  const float sum = warp_sum(mine.sum * expf(mine.maximum - of_warp));
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = {of_warp, sum};
  __syncthreads();
  MaximumAndSum all{kLowest, 0.0f};
  for (const MaximumAndSum& each : of_warps) all.maximum = fmaxf(all.maximum, each.maximum);
  for (const MaximumAndSum& each : of_warps) all.sum += each.sum * expf(each.maximum - all.maximum);
  return all;
}

/// For the target columns of a row: the sum of the weights, the sum of weight * logit, and whether there are any target columns.
struct RowTarget {
  float weight, logit;
  bool any;
};

/// Computes a row's target with all threads of the block. Every thread gets the result.
__device__ __forceinline__ RowTarget target_of(const float* logits, const std::int64_t* columns, const float* weights,
                                               std::int64_t places) {
  if (weights == nullptr && places == 1)  // there is only one target, which every thread reads itself
    return columns[0] < 0 ? RowTarget{0.0f, 0.0f, false} : RowTarget{1.0f, logits[columns[0]], true};
  __shared__ float sums[kThreads / 32][3];
  float mine[3] = {0.0f, 0.0f, 0.0f};
  for (std::int64_t place = threadIdx.x; place < places; place += kThreads) {
    if (columns[place] < 0) continue;
    const float weight = weights == nullptr ? 1.0f : weights[place];
    mine[0] += weight;
    mine[1] += weight * logits[columns[place]];
    mine[2] += 1.0f;
  }
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    const float sum = warp_sum(mine[i]);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32][i] = sum;
  }
  __syncthreads();
  float all[3] = {0.0f, 0.0f, 0.0f};
  for (const auto& of_warp : sums)
    for (int i = 0; i < 3; ++i) all[i] += of_warp[i];
  return {all[0], all[1], all[2] > 0.0f};
}

template <class Element, int kCount>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_row(std::int64_t columns, const float* tile, std::int64_t places, const std::int64_t* all_targets,
                      const float* all_weights, float* losses, Element* gradients) {
  const std::int64_t row = blockIdx.x;
  const std::int64_t* const targets = all_targets + row * places;
  const float* const weights = all_weights == nullptr ? nullptr : all_weights + row * places;
  const float* const logits = tile + row * columns;
  Element* const gradient = gradients == nullptr ? nullptr : gradients + row * columns;
  // The target is computed first, because the gradient may overwrite the logits after the barrier in over_block().
  const RowTarget target = target_of(logits, targets, weights, places);
  MaximumAndSum mine{kLowest, 0.0f};
  if (target.any) {
    for (std::int64_t column = threadIdx.x * kCount; column < columns; column += kThreads * kCount) {
      const auto piece = word_at<Piece<float, kCount>>(logits + column);
      float maximum = mine.maximum;
#pragma unroll
      for (int i = 0; i < kCount; ++i) maximum = fmaxf(maximum, piece.values[i]);
      mine.sum *= expf(mine.maximum - maximum);
#pragma unroll
      for (int i = 0; i < kCount; ++i) mine.sum += expf(piece.values[i] - maximum);
      mine.maximum = maximum;
    }
  }
  const MaximumAndSum all = over_block(mine);
  if (threadIdx.x == 0)
    losses[row] = target.any ? target.weight * (all.maximum + logf(all.sum)) - target.logit : 0.0f;
  if (gradient == nullptr) return;
  const float share = target.weight / all.sum;
  for (std::int64_t column = threadIdx.x * kCount; column < columns; column += kThreads * kCount) {
    const auto piece = word_at<Piece<float, kCount>>(logits + column);
    Piece<Element, kCount> out;
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      out.values[i] = from_float<Element>(target.any ? expf(piece.values[i] - all.maximum) * share : 0.0f);
    word_at<Piece<Element, kCount>>(gradient + column) = out;
  }
  __syncthreads();
  // If several targets of the row are the same column, the thread of the first of these targets subtracts all their weights, so that no two
  // threads write to the same element.
  // A float32 gradient already holds the softmax here. A bfloat16 gradient has its own array, so the logits still exist; the softmax is
  // computed from them again, so that the result is rounded only once.
  constexpr bool kNarrow = sizeof(Element) < sizeof(float);
  for (std::int64_t place = threadIdx.x; place < places; place += kThreads) {
    const std::int64_t column = targets[place];
    if (column < 0 || (place > 0 && targets[place - 1] == column)) continue;
    float weight = 0.0f;
    for (std::int64_t same = place; same < places && targets[same] == column; ++same)
      weight += weights == nullptr ? 1.0f : weights[same];
    const float softmax = kNarrow ? expf(logits[column] - all.maximum) * share : to_float(gradient[column]);
    gradient[column] = from_float<Element>(softmax - weight);
  }
}

template <class Element, int kCount>
Status start(const CrossEntropyTile& given, void* stream) {
  return launch("linear_cross_entropy", cross_entropy_row<Element, kCount>, dim3(static_cast<unsigned>(given.rows)),
                kThreads, 0, stream, given.columns, given.logits, given.places, given.targets, given.weights,
                given.losses, static_cast<Element*>(given.gradient));
}

/// Processes four columns at a time if the alignment of all rows of both arrays allows it.
template <class Element>
Status start_for_alignment(const CrossEntropyTile& given, void* stream) {
  const auto aligned = [](const void* data, std::size_t bytes) {
    return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
  };
  const bool wide = given.columns % 4 == 0 && aligned(given.logits, 4 * sizeof(float)) &&
                    aligned(given.gradient, 4 * sizeof(Element));
  return wide ? start<Element, 4>(given, stream) : start<Element, 1>(given, stream);
}

}  // namespace

namespace TESSERA_DEVICE_NAMESPACE {

Status cross_entropy_tile(const CrossEntropyTile& arguments, void* stream) {
  if (Status status = check(arguments); !status.ok() || arguments.rows == 0) return status;
  if (arguments.rows > kMostBlocks) {
    return Status::failure("linear_cross_entropy: a tile of " + std::to_string(arguments.rows) +
                           " rows is too large for one launch");
  }
  return arguments.type == DataType::kBfloat16 ? start_for_alignment<Bfloat16>(arguments, stream)
                                               : start_for_alignment<float>(arguments, stream);
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
