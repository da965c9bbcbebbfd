// These kernels are memory-bound. A warp processes a row. It reads the row from memory once, and after that from the
// L1 cache. Rows are short: an image has only a few hundred patches, and an embedding a few hundred numbers.
#include "kernels/device/primitives.h"
#include "kernels/text_pool/text_pool.h"

namespace tessera::kernels {
namespace {

constexpr int kWarps = 4;
constexpr float kLowest = -3.4028235e38f;  // initial value of a running maximum; -infinity would lead to NaN
constexpr float kShort = 1e-12f;           // a vector with a smaller norm is divided by this number instead of by its norm

__device__ __forceinline__ std::int64_t row_of_warp() {
  return static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
}

__global__ void __launch_bounds__(kWarps * 32)
    softmax_rows(std::int64_t rows, std::int64_t patches, bool zero_token, float* tile) {
  const std::int64_t row = row_of_warp();
  const unsigned lane = threadIdx.x % 32;
  if (row >= rows) return;
  float* const scores = tile + row * patches;
  float top = zero_token ? 0.0f : kLowest;
  for (std::int64_t p = lane; p < patches; p += 32) top = fmaxf(top, scores[p]);
  top = warp_maximum(top);
  float sum = 0.0f;
  for (std::int64_t p = lane; p < patches; p += 32) {
    const float power = expf(scores[p] - top);
    scores[p] = power;
    sum += power;
  }
  sum = warp_sum(sum);
  if (zero_token) sum += expf(-top);
  const float share = 1.0f / sum;
  for (std::int64_t p = lane; p < patches; p += 32) scores[p] *= share;
}

__global__ void __launch_bounds__(kWarps * 32)
    softmax_backward_rows(std::int64_t rows, std::int64_t patches, const float* weight_tile, float* gradient_tile) {
  const std::int64_t row = row_of_warp();
  const unsigned lane = threadIdx.x % 32;
  if (row >= rows) return;
  const float* const weights = weight_tile + row * patches;
  float* const gradient = gradient_tile + row * patches;
  float mean = 0.0f;
  for (std::int64_t p = lane; p < patches; p += 32) mean += weights[p] * gradient[p];
  mean = warp_sum(mean);
  for (std::int64_t p = lane; p < patches; p += 32) gradient[p] = weights[p] * (gradient[p] - mean);
}

__global__ void __launch_bounds__(kWarps * 32) pair_rows(PooledPairs a) {
  const std::int64_t row = row_of_warp();
  const unsigned lane = threadIdx.x % 32;
  if (row >= a.rows) return;
  float* const pooled = a.pooled + row * a.width;
  float* const text = a.text + row * a.width;
  float with_text = 0.0f, with_itself = 0.0f;
  for (std::int64_t i = lane; i < a.width; i += 32) {
    with_text += pooled[i] * text[i];
    with_itself += pooled[i] * pooled[i];
  }
  const float length = sqrtf(warp_sum(with_itself)), share = 1.0f / fmaxf(length, kShort);
  const float cosine = warp_sum(with_text) * share, label = a.labels[row];
  const float against = -label * (*a.scale * cosine + *a.bias);
  const float of_logit = label == 0.0f ? 0.0f : -label / (1.0f + expf(-against));
  if (lane == 0) {
    a.losses[row] = label == 0.0f ? 0.0f : fmaxf(against, 0.0f) + log1pf(expf(-fabsf(against)));
    if (a.of_scale != nullptr) a.of_scale[row] = of_logit * cosine;
    if (a.of_bias != nullptr) a.of_bias[row] = of_logit;
  }
  if (!a.gradient) return;
  const float of_cosine = of_logit * *a.scale, both = of_cosine * share;
  const float of_itself = length > kShort ? -both * cosine * share : 0.0f;
  for (std::int64_t i = lane; i < a.width; i += 32) {
    const float value = pooled[i];
    pooled[i] = value * of_itself + text[i] * both;
    text[i] = value * both;
  }
}

template <class... Parameters, class... Arguments>
Status start_rows(std::int64_t rows, void (*kernel)(Parameters...), void* stream, const Arguments&... arguments) {
  const std::int64_t blocks = (rows + kWarps - 1) / kWarps;
  if (blocks > kMostBlocks)
    return Status::failure("text_conditioned_pool: a tile of " + std::to_string(rows) +
                           " rows is too large for one launch");
  return launch("text_conditioned_pool", kernel, dim3(static_cast<unsigned>(blocks)), kWarps * 32, 0, stream,
                arguments...);
}

}  // namespace

namespace TESSERA_DEVICE_NAMESPACE {

Status patch_softmax(const PatchSoftmax& a, void* stream) {
  if (Status status = check(a); !status.ok() || a.rows == 0) return status;
  return start_rows(a.rows, softmax_rows, stream, a.rows, a.patches, a.zero_token, a.scores);
}

Status patch_softmax_backward(const PatchSoftmaxBackward& a, void* stream) {
  if (Status status = check(a); !status.ok() || a.rows == 0) return status;
  return start_rows(a.rows, softmax_backward_rows, stream, a.rows, a.patches, a.weights, a.gradient);
}

Status pooled_pairs(const PooledPairs& a, void* stream) {
  if (Status status = check(a); !status.ok() || a.rows == 0) return status;
  return start_rows(a.rows, pair_rows, stream, a);
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
