// The softmax of a row, for one instruction set. cpu/matrix.inc.h explains what the including source must define.
#include "kernels/cpu/exponential.inc.h"
#include "kernels/linear_cross_entropy/softmax_row.h"

namespace tessera::kernels {
namespace {

/// The number of vectors that are processed together, each with its own sum.
constexpr int kVectors = 4;
constexpr int kStrip = kVectors * kVector;

inline Vector greater(Vector a, Vector b) {
  return select(a > b, a, b);
}

/// Loads the last `count` columns, which are too few for a vector. Fills the rest of the vector with -infinity.
inline Vector load_rest(const float* from, std::int64_t count) {
  float lanes[kVector];
  for (int lane = 0; lane < kVector; ++lane) lanes[lane] = lane < count ? from[lane] : -__builtin_huge_valf();
  return load(lanes);
}
inline void store_rest(float* to, std::int64_t count, Vector value) {
  for (int lane = 0; lane < count; ++lane) to[lane] = value[lane];
}

/// Returns the maximum, ignoring NaN.
float maximum(const float* values, std::int64_t columns) {
  Vector best[kVectors];
  for (int i = 0; i < kVectors; ++i) best[i] = broadcast(-__builtin_huge_valf());
  std::int64_t column = 0;
  for (; column + kStrip <= columns; column += kStrip) {
    for (int i = 0; i < kVectors; ++i) best[i] = greater(load(values + column + i * kVector), best[i]);
  }
  for (; column + kVector <= columns; column += kVector) best[0] = greater(load(values + column), best[0]);
  if (column < columns) best[0] = greater(load_rest(values + column, columns - column), best[0]);
  const Vector all = greater(greater(best[0], best[1]), greater(best[2], best[3]));
  float result = all[0];
  for (int lane = 1; lane < kVector; ++lane) result = all[lane] > result ? all[lane] : result;
  return result;
}

float log_sum_exp(const float* logits, std::int64_t columns, float* softmax, float scale) {
  const float top = maximum(logits, columns);
  const Vector shift = broadcast(top);
  Vector sums[kVectors] = {};
  std::int64_t column = 0;
  for (; column + kStrip <= columns; column += kStrip) {
    for (int i = 0; i < kVectors; ++i) {
      const Vector power = exponential(load(logits + column + i * kVector) - shift);
      sums[i] += power;
      if (softmax != nullptr) store(softmax + column + i * kVector, power);
    }
  }
  for (; column < columns; column += kVector) {
    const std::int64_t rest = columns - column;
    const Vector from = rest >= kVector ? load(logits + column) : load_rest(logits + column, rest);
    const Vector power = exponential(from - shift);
    sums[0] += power;
    if (softmax != nullptr) store_rest(softmax + column, smaller(rest, kVector), power);
  }
  const Vector all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  float sum = 0.0f;
  for (int lane = 0; lane < kVector; ++lane) sum += all[lane];
  if (softmax != nullptr) {
    const float share = scale / sum;
    for (column = 0; column + kVector <= columns; column += kVector) {
      store(softmax + column, load(softmax + column) * share);
    }
    for (; column < columns; ++column) softmax[column] *= share;
  }
  return top + __builtin_logf(sum);
}

}  // namespace
}  // namespace tessera::kernels
