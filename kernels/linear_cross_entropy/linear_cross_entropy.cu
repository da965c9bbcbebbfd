// This kernel is memory-bound. A block processes a row. Its threads load the row's logits in words of 16 bytes. Each thread computes the
// maximum of its logits and the sum of exp(logit - maximum). If the row fits in the block's registers, the kernel reads each logit once.
// It reads a longer row twice, the second time from the L2 cache.
#include "kernels/device/words.h"
#include "kernels/linear_cross_entropy/linear_cross_entropy.h"

namespace tessera::kernels {
namespace {

constexpr int kThreads = 1024;
constexpr std::int64_t kMostColumns = 1 << 30;  // columns are counted in 32 bits
constexpr std::int64_t kMostPlaces = 8192;  // their logits are in shared memory, 32 KB
constexpr float kLowest = -3.4028235e38f;  // initial value of a running maximum; -infinity would lead to NaN

/// The maximum of some values and the sum of exp(value - maximum).
struct MaximumAndSum {
  float maximum, sum;
};

__device__ __forceinline__ MaximumAndSum over_warp(MaximumAndSum mine) {
  const float maximum = warp_maximum(mine.maximum);
  return {maximum, warp_sum(mine.sum * expf(mine.maximum - maximum))};
}

/// Combines the values of all threads of the block. Every thread gets the result.
__device__ __forceinline__ MaximumAndSum over_block(MaximumAndSum mine) {
  static_assert(kThreads == 32 * 32, "one warp combines the values of all warps");
  __shared__ MaximumAndSum of_warps[32];
  const MaximumAndSum of_warp = over_warp(mine);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = of_warp;
  __syncthreads();
  return over_warp(of_warps[threadIdx.x % 32]);
}

/// For the target columns of a row: the sum of the weights, the sum of weight * logit, and whether there are any target columns.
struct RowTarget {
  float weight, logit;
  bool any;
};

/// Computes a row's target with all threads of the block. Every thread gets the result. Also copies the logit of each place to
/// `of_places` [places], because the gradient may overwrite the logits. The thread p % kThreads writes the logit of place p.
template <class Element>
__device__ __forceinline__ RowTarget target_of(const Element* logits, const std::int64_t* columns, const float* weights,
                                               std::int64_t places, float* of_places) {
  if (weights == nullptr && places == 1) {  // there is only one target, which every thread reads itself
    if (columns[0] < 0) return {0.0f, 0.0f, false};
    const float logit = to_float(logits[columns[0]]);
    if (threadIdx.x == 0) of_places[0] = logit;
    return {1.0f, logit, true};
  }
  __shared__ float sums[32][3];
  float mine[3] = {0.0f, 0.0f, 0.0f};
  for (std::int64_t place = threadIdx.x; place < places; place += kThreads) {
    if (columns[place] < 0) continue;
    const float weight = weights == nullptr ? 1.0f : weights[place];
    of_places[place] = to_float(logits[columns[place]]);
    mine[0] += weight;
    mine[1] += weight * of_places[place];
    mine[2] += 1.0f;
  }
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    const float sum = warp_sum(mine[i]);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32][i] = sum;
  }
  __syncthreads();
  const float* const of_warp = sums[threadIdx.x % 32];
  return {warp_sum(of_warp[0]), warp_sum(of_warp[1]), warp_sum(of_warp[2]) > 0.0f};
}

/// kKept is the number of 16-byte words of the row that a thread keeps in registers. With 0, the thread reads its words again.
template <class Element, int kKept>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_row(std::int64_t columns, std::int64_t pitch, const Element* tile, std::int64_t places,
                      const std::int64_t* all_targets, const float* all_weights, float* losses, Element* gradients) {
  constexpr int kCount = kWordElements<Element>;
  TESSERA_DYNAMIC_SHARED(shared);
  float* const of_places = reinterpret_cast<float*>(shared);
  const std::int64_t row = blockIdx.x;
  const std::int64_t* const targets = all_targets + row * places;
  const float* const weights = all_weights == nullptr ? nullptr : all_weights + row * places;
  const Element* const logits = tile + row * pitch;
  Element* const gradient = gradients == nullptr ? nullptr : gradients + row * pitch;

  const int first = static_cast<int>(threadIdx.x) * kCount, width = static_cast<int>(columns);
  constexpr int kStep = kThreads * kCount;
  Word kept[kKept + 1];
  if constexpr (kKept > 0) {
#pragma unroll
    for (int i = 0; i < kKept; ++i)
      if (first + i * kStep < width) kept[i] = word_at<Word>(logits + first + i * kStep);
  }
  // Calls visit(column, logits of kCount columns from there on) for all words of the thread. The padding counts as -infinity.
  const auto for_each_word = [&](auto visit) {
    const auto visit_word = [&](int column, const Word& word) {
      float values[kCount];
#pragma unroll
      for (int k = 0; k < kCount; ++k) values[k] = column + k < width ? element<Element>(word, k) : -kInfinity;
      visit(column, values);
    };
    if constexpr (kKept > 0) {
#pragma unroll
      for (int i = 0; i < kKept; ++i)
        if (first + i * kStep < width) visit_word(first + i * kStep, kept[i]);
    } else {
      for (int column = first; column < width; column += kStep) {
        const Word word = word_at<Word>(logits + column);
        visit_word(column, word);
      }
    }
  };

  const RowTarget target = target_of(logits, targets, weights, places, of_places);
  MaximumAndSum mine{kLowest, 0.0f};
  if (target.any) {
    for_each_word([&](int, const float(&values)[kCount]) {
      float maximum = mine.maximum;
#pragma unroll
      for (const float value : values) maximum = fmaxf(maximum, value);
      mine.sum *= expf(mine.maximum - maximum);
#pragma unroll
      for (const float value : values) mine.sum += expf(value - maximum);
      mine.maximum = maximum;
    });
  }
  const MaximumAndSum all = over_block(mine);
  if (threadIdx.x == 0)
    losses[row] = target.any ? target.weight * (all.maximum + logf(all.sum)) - target.logit : 0.0f;
  if (gradient == nullptr) return;
  const float share = target.weight / all.sum;
  for_each_word([&](int column, const float(&values)[kCount]) {
    Word out = {};
#pragma unroll
    for (int k = 0; k < kCount; ++k)
      set_element(out, k, from_float<Element>(target.any ? expf(values[k] - all.maximum) * share : 0.0f));
    word_at<Word>(gradient + column) = out;
  });
  __syncthreads();
  // If several targets of the row are the same column, the thread of the first of these targets subtracts all their weights, so that no two
  // threads write to the same element. The softmax is computed again, so that the result is rounded only once.
  for (std::int64_t place = threadIdx.x; place < places; place += kThreads) {
    const std::int64_t column = targets[place];
    if (column < 0 || (place > 0 && targets[place - 1] == column)) continue;
    float weight = 0.0f;
    for (std::int64_t same = place; same < places && targets[same] == column; ++same)
      weight += weights == nullptr ? 1.0f : weights[same];
    gradient[column] = from_float<Element>(expf(of_places[place] - all.maximum) * share - weight);
  }
}

template <class Element, int kKept>
Status start(const CrossEntropyTile& given, void* stream) {
  return launch("linear_cross_entropy", cross_entropy_row<Element, kKept>, dim3(static_cast<unsigned>(given.rows)),
                kThreads, static_cast<std::size_t>(given.places) * sizeof(float), stream, given.columns,
                given.row_pitch(), static_cast<const Element*>(given.logits), given.places, given.targets,
                given.weights, given.losses, static_cast<Element*>(given.gradient));
}

template <class Element>
Status start_for_width(const CrossEntropyTile& given, void* stream) {
  constexpr std::int64_t kStep = kThreads * 16 / sizeof(Element);
  if (given.columns <= 4 * kStep) return start<Element, 4>(given, stream);
  return given.columns <= 7 * kStep ? start<Element, 7>(given, stream) : start<Element, 0>(given, stream);
}

/// Checks what only the kernel needs.
Status check_on_device(const CrossEntropyTile& given) {
  const auto failure = [](const std::string& mistake) { return Status::failure("linear_cross_entropy: " + mistake); };
  const std::int64_t row_bytes = given.row_pitch() * static_cast<std::int64_t>(size_of(given.type));
  for (const void* const start : {given.logits, static_cast<const void*>(given.gradient)})
    if (reinterpret_cast<std::uintptr_t>(start) % 16 != 0 || row_bytes % 16 != 0)
      return failure("the rows of logits and gradient must begin at multiples of 16 bytes");
  if (given.places > kMostPlaces) return failure("a row may have at most 8192 places, but has " + std::to_string(given.places));
  if (given.rows > kMostBlocks || given.columns > kMostColumns) return failure("the tile is too large for one launch");
  return {};
}

}  // namespace

namespace TESSERA_DEVICE_NAMESPACE {

Status cross_entropy_tile(const CrossEntropyTile& arguments, void* stream) {
  if (Status status = check(arguments); !status.ok() || arguments.rows == 0) return status;
  if (Status status = check_on_device(arguments); !status.ok()) return status;
  return arguments.type == DataType::kBfloat16 ? start_for_width<Bfloat16>(arguments, stream)
                                               : start_for_width<float>(arguments, stream);
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
