// Rows of text-conditioned pooling, for one instruction set. cpu/matrix.inc.h explains what the including source must
// define.
#include "kernels/linear_cross_entropy/softmax_row.inc.h"
#include "kernels/text_pool/pool_rows.h"

namespace tessera::kernels {
namespace {

inline float sum_of(const Vector (&sums)[kVectors]) {
  const Vector all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  float sum = 0.0f;
  for (int lane = 0; lane < kVector; ++lane) sum += all[lane];
  return sum;
}

/// Calls visit(place, i) for each full SIMD vector in a row of `count` numbers. The vector starts at index `place`
/// and belongs to partial sum i. Returns the index after the last full vector.
template <class Visit>
inline std::int64_t whole_vectors(std::int64_t count, Visit visit) {
  std::int64_t place = 0;
  for (; place + kStrip <= count; place += kStrip) {
    for (int i = 0; i < kVectors; ++i) visit(place + i * kVector, i);
  }
  for (; place + kVector <= count; place += kVector) visit(place, 0);
  return place;
}

void pool_softmax(float* scores, std::int64_t count, bool zero_token) {
  const float sum = log_sum_exp(scores, count, scores, 1.0f);
  if (!zero_token) return;
  const float share = sum < 0.0f ? __builtin_expf(sum) / (1.0f + __builtin_expf(sum)) : 1.0f / (1.0f + __builtin_expf(-sum));
  std::int64_t place = whole_vectors(count, [&](std::int64_t at, int) { store(scores + at, load(scores + at) * share); });
  for (; place < count; ++place) scores[place] *= share;
}

void pool_softmax_backward(const float* weights, float* gradient, std::int64_t count) {
  Vector sums[kVectors] = {};
  const std::int64_t rest = whole_vectors(
      count, [&](std::int64_t at, int i) { sums[i] += load(weights + at) * load(gradient + at); });
  float mean = sum_of(sums);
  for (std::int64_t place = rest; place < count; ++place) mean += weights[place] * gradient[place];
  whole_vectors(count, [&](std::int64_t at, int) {
    store(gradient + at, load(weights + at) * (load(gradient + at) - mean));
  });
  for (std::int64_t place = rest; place < count; ++place) gradient[place] = weights[place] * (gradient[place] - mean);
}

void pool_products(const float* x, const float* y, std::int64_t count, float* with_other, float* with_itself) {
  Vector others[kVectors] = {}, own[kVectors] = {};
  const std::int64_t rest = whole_vectors(count, [&](std::int64_t at, int i) {
    const Vector value = load(x + at);
    others[i] += value * load(y + at);
    own[i] += value * value;
  });
  *with_other = sum_of(others);
  *with_itself = sum_of(own);
  for (std::int64_t place = rest; place < count; ++place) {
    *with_other += x[place] * y[place];
    *with_itself += x[place] * x[place];
  }
}

void pool_combine(float* x, float* y, std::int64_t count, float a, float b, float c) {
  std::int64_t place = whole_vectors(count, [&](std::int64_t at, int) {
    const Vector value = load(x + at);
    store(x + at, value * a + load(y + at) * b);
    store(y + at, value * c);
  });
  for (; place < count; ++place) {
    const float value = x[place];
    x[place] = value * a + y[place] * b;
    y[place] = value * c;
  }
}

}  // namespace
}  // namespace tessera::kernels
