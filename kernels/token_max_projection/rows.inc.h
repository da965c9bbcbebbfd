// The loops over rows, for one instruction set. cpu/matrix.inc.h explains what the including source must define.
#include "kernels/cpu/matrix.inc.h"
#include "kernels/token_max_projection/rows.h"

namespace tessera::kernels {
namespace {

/// How many SIMD vectors of columns are processed together. In each row, these vectors fill whole cache lines.
constexpr int kVectors = 4;
constexpr int kStrip = kVectors * kVector;

void maxima(const float* matrix, std::int64_t rows, std::int64_t columns, float* maximum, std::int32_t* row) {
  std::int64_t column = 0;
  for (; column + kStrip <= columns; column += kStrip) {
    Vector best[kVectors];
    IntVector index[kVectors];
    for (int i = 0; i < kVectors; ++i) {
      best[i] = load(matrix + column + i * kVector);
      index[i] = IntVector{};
    }
    IntVector current{};
    const float* from = matrix + column;
    for (std::int64_t r = 1; r < rows; ++r) {
      from += columns;
      current += 1;
      for (int i = 0; i < kVectors; ++i) {
        const Vector value = load(from + i * kVector);
        const IntVector better = ~(value <= best[i]) & (best[i] == best[i]);  // the first NaN in a column, if any, is its maximum
        best[i] = select(better, value, best[i]);
        index[i] = better ? current : index[i];
      }
    }
    for (int i = 0; i < kVectors; ++i) {
      store(maximum + column + i * kVector, best[i]);
      for (int lane = 0; lane < kVector; ++lane) row[column + i * kVector + lane] = index[i][lane];
    }
  }
  for (; column < columns; ++column) {
    float best = matrix[column];
    std::int32_t index = 0;
    for (std::int64_t r = 1; r < rows && best == best; ++r) {
      const float value = matrix[r * columns + column];
      if (value <= best) continue;
      best = value;
      index = static_cast<std::int32_t>(r);
    }
    maximum[column] = best;
    row[column] = index;
  }
}

void weighted_sum(const float* table, std::int64_t width, const std::int32_t* index, const float* weights,
                  std::int64_t count, float* to) {
  for (std::int64_t c = 0; c < width; ++c) to[c] = 0.0f;
  for (std::int64_t i = 0; i < count; ++i) add_scaled(to, table + index[i] * width, weights[i], width);
}

}  // namespace
}  // namespace tessera::kernels
