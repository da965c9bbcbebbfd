// This kernel is memory-bound. A thread processes a tile of columns over all rows, four rows at a time. The sums of the
// tile stay in the first-level cache. The inner loops are simple, so that the compiler vectorizes them.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/flops_regularizer/flops_regularizer.h"

namespace tessera::kernels::cpu {
namespace {

constexpr std::int64_t kTileColumns = 1024;
/// How many rows are summed in float32 before their sum is added to the float64 sum.
constexpr std::int64_t kBlockRows = 128;

inline float as_float(float value) {
  return value;
}
inline float as_float(std::uint16_t bits) {
  return bfloat16_to_float(bits);
}

template <class Element>
void add_rows(const Element* from, std::int64_t row_stride, std::int64_t rows, std::int64_t columns, float* sums) {
  std::int64_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    const Element* const r0 = from + row * row_stride;
    const Element* const r1 = r0 + row_stride;
    const Element* const r2 = r1 + row_stride;
    const Element* const r3 = r2 + row_stride;
    for (std::int64_t c = 0; c < columns; ++c) {
      sums[c] += (as_float(r0[c]) + as_float(r1[c])) + (as_float(r2[c]) + as_float(r3[c]));
    }
  }
  for (; row < rows; ++row) {
    const Element* const r0 = from + row * row_stride;
    for (std::int64_t c = 0; c < columns; ++c) sums[c] += as_float(r0[c]);
  }
}

template <class Element>
void sum_tile(const FlopsForward& arguments, std::int64_t first, float* sums) {
  const std::int64_t columns = std::min(kTileColumns, arguments.columns - first);
  float block[kTileColumns];
  double total[kTileColumns] = {};
  for (std::int64_t row = 0; row < arguments.rows; row += kBlockRows) {
    std::fill(block, block + columns, 0.0f);
    add_rows(static_cast<const Element*>(arguments.encoding) + row * arguments.row_stride + first, arguments.row_stride,
             std::min(kBlockRows, arguments.rows - row), columns, block);
    for (std::int64_t c = 0; c < columns; ++c) total[c] += block[c];
  }
  for (std::int64_t c = 0; c < columns; ++c) sums[first + c] = static_cast<float>(total[c]);
}

}  // namespace

Status flops_forward(const FlopsForward& arguments, const Parallel& parallel) {
  if (Status status = check(arguments); !status.ok()) return status;
  float* const sums = arguments.column_sum != nullptr ? arguments.column_sum : arguments.column_mean;
  for_each_item(parallel, (arguments.columns + kTileColumns - 1) / kTileColumns, [&](int, std::int64_t tile) {
    if (arguments.type == DataType::kBfloat16) {
      sum_tile<std::uint16_t>(arguments, tile * kTileColumns, sums);
    } else {
      sum_tile<float>(arguments, tile * kTileColumns, sums);
    }
  });
  if (arguments.loss == nullptr) return {};
  double loss = 0.0;
  for (std::int64_t c = 0; c < arguments.columns; ++c) {
    const double mean = static_cast<double>(sums[c]) / static_cast<double>(arguments.rows);
    arguments.column_mean[c] = static_cast<float>(mean);
    loss += mean * mean;
  }
  *arguments.loss = static_cast<float>(loss);
  return {};
}

Status flops_backward(const FlopsBackward& arguments, const Parallel& parallel) {
  const std::int64_t rows = arguments.written_rows;
  if (Status status = check(arguments); !status.ok() || arguments.rows == 0 || rows == 0) return status;
  const std::size_t row_bytes = static_cast<std::size_t>(arguments.columns) * size_of(arguments.type);
  const float scale = 2.0f / static_cast<float>(arguments.rows) * *arguments.grad_loss;
  std::vector<char> gradient(row_bytes);  // the same for every row
  for (std::int64_t c = 0; c < arguments.columns; ++c) {
    const float value = scale * arguments.column_mean[c];
    if (arguments.type == DataType::kBfloat16) {
      const std::uint16_t rounded = float_to_bfloat16(value);
      std::memcpy(gradient.data() + c * sizeof(rounded), &rounded, sizeof(rounded));
    } else {
      std::memcpy(gradient.data() + c * sizeof(value), &value, sizeof(value));
    }
  }
  constexpr std::int64_t kRowsAtOnce = 16;
  for_each_item(parallel, (rows + kRowsAtOnce - 1) / kRowsAtOnce, [&](int, std::int64_t item) {
    const std::int64_t end = std::min(rows, (item + 1) * kRowsAtOnce);
    for (std::int64_t row = item * kRowsAtOnce; row < end; ++row) {
      std::memcpy(static_cast<char*>(arguments.grad_encoding) +
                      row * arguments.row_stride * static_cast<std::int64_t>(size_of(arguments.type)),
                  gradient.data(), row_bytes);
    }
  });
  return {};
}

}  // namespace tessera::kernels::cpu
