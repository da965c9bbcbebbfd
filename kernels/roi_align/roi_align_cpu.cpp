// This kernel is memory-bound. It reads a cell's channels once for each bin in which the cell has a weight. Forward: A
// thread processes one box after another. Backward: A thread processes one row of cells after another, so that no two
// threads add to one place. The inner loops run over channels and are simple, so that the compiler vectorizes them.
#include <algorithm>
#include <string>
#include <vector>

#include "kernels/roi_align/roi_align.h"
#include "kernels/roi_align/tables.h"

namespace tessera::kernels::cpu {
namespace {

inline float as_float(float value) {
  return value;
}
inline float as_float(std::uint16_t bits) {
  return bfloat16_to_float(bits);
}
inline void store(float* to, float value) {
  *to = value;
}
inline void store(std::uint16_t* to, float value) {
  *to = float_to_bfloat16(value);
}

/// Adds the weighted sum of `count` adjacent cells to `sums`, for each channel.
template <class Element>
void add_cells(const Element* cells, const float* weights, std::int64_t count, std::int64_t channels, float* sums) {
  std::int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const Element *c0 = cells + i * channels, *c1 = c0 + channels, *c2 = c1 + channels, *c3 = c2 + channels;
    const float w0 = weights[i], w1 = weights[i + 1], w2 = weights[i + 2], w3 = weights[i + 3];
    for (std::int64_t c = 0; c < channels; ++c)
      sums[c] += (w0 * as_float(c0[c]) + w1 * as_float(c1[c])) + (w2 * as_float(c2[c]) + w3 * as_float(c3[c]));
  }
  for (; i < count; ++i) {
    const Element* const cell = cells + i * channels;
    for (std::int64_t c = 0; c < channels; ++c) sums[c] += weights[i] * as_float(cell[c]);
  }
}

void fill_box(const RoiAlignProblem& p, const RoiTables& tables, std::int64_t box) {
  for (std::int64_t bin = 0; bin < p.bin_rows + p.bin_columns; ++bin) fill_bin(p, tables, box, bin);
}

template <class Element>
void pool_box(const RoiAlignForward& a, const RoiTables& tables, std::int64_t box, std::vector<float>& sums) {
  const RoiAlignProblem& p = a.problem;
  const auto* const image = static_cast<const Element*>(a.features) + p.image[box] * p.height * p.width * p.channels;
  auto* out = static_cast<Element*>(a.out) + box * p.bin_rows * p.bin_columns * p.channels;
  std::vector<float> weights(static_cast<std::size_t>(p.width));
  for (std::int64_t row = box * p.bin_rows; row < (box + 1) * p.bin_rows; ++row) {
    for (std::int64_t column = box * p.bin_columns; column < (box + 1) * p.bin_columns; ++column) {
      const CellRange rows = tables.row_cells[row], columns = tables.column_cells[column];
      const std::int64_t count = columns.end - columns.begin;
      std::fill(sums.begin(), sums.end(), 0.0f);
      for (std::int64_t y = rows.begin; y < rows.end; ++y) {
        for (std::int64_t i = 0; i < count; ++i)
          weights[i] = tables.rows[row * p.height + y] * tables.columns[column * p.width + columns.begin + i];
        add_cells(image + (y * p.width + columns.begin) * p.channels, weights.data(), count, p.channels, sums.data());
      }
      for (std::int64_t c = 0; c < p.channels; ++c) store(out++, sums[c]);
    }
  }
}

/// Adds the gradient [C] of one bin, times the cells' weights, to a row of cells [W, C].
template <class Element>
void spread_bin(const RoiAlignProblem& p, const RoiTables& tables, float row_weight, std::int64_t column,
                const Element* gradient, float* sums) {
  const CellRange cells = tables.column_cells[column];
  for (std::int64_t x = cells.begin; x < cells.end; ++x) {
    const float weight = row_weight * tables.columns[column * p.width + x];
    for (std::int64_t c = 0; c < p.channels; ++c) sums[x * p.channels + c] += weight * as_float(gradient[c]);
  }
}

template <class Element>
void gather_row(const RoiAlignBackward& a, const RoiTables& tables, std::int64_t image, std::int64_t y,
                std::vector<float>& sums) {
  const RoiAlignProblem& p = a.problem;
  std::fill(sums.begin(), sums.end(), 0.0f);
  for (std::int64_t i = a.first[image]; i < a.first[image + 1]; ++i) {
    const std::int64_t box = a.order[i];
    const auto* gradient = static_cast<const Element*>(a.gradient) + box * p.bin_rows * p.bin_columns * p.channels;
    for (std::int64_t row = box * p.bin_rows; row < (box + 1) * p.bin_rows; ++row) {
      const CellRange cells = tables.row_cells[row];
      for (std::int64_t column = box * p.bin_columns; column < (box + 1) * p.bin_columns; ++column) {
        if (y >= cells.begin && y < cells.end)
          spread_bin(p, tables, tables.rows[row * p.height + y], column, gradient, sums.data());
        gradient += p.channels;
      }
    }
  }
  auto* const out = static_cast<Element*>(a.of_features) + (image * p.height + y) * p.width * p.channels;
  for (std::size_t i = 0; i < sums.size(); ++i) store(out + i, sums[i]);
}

Status check_images(const RoiAlignProblem& p) {
  for (std::int64_t box = 0; box < p.boxes; ++box) {
    if (p.image[box] >= 0 && p.image[box] < p.images) continue;
    return Status::failure("roi_align: box " + std::to_string(box) + " belongs to image " + std::to_string(p.image[box]) +
                           ", but there are " + std::to_string(p.images) + " images");
  }
  return {};
}

/// Calls body(item, sums) for each item. `sums` is a buffer of `size` floats that belongs to the thread.
template <class Body>
void for_each_with_sums(const Parallel& parallel, std::int64_t items, std::int64_t size, Body body) {
  std::vector<std::vector<float>> sums(static_cast<std::size_t>(thread_count(parallel, items)));
  for_each_item(parallel, items, [&](int thread, std::int64_t item) {
    sums[thread].resize(static_cast<std::size_t>(size));
    body(item, sums[thread]);
  });
}

}  // namespace

Status roi_align_forward(const RoiAlignForward& a, const Parallel& parallel) {
  if (Status status = check(a); !status.ok() || a.problem.boxes == 0) return status;
  if (Status status = check_images(a.problem); !status.ok()) return status;
  const RoiTables tables = roi_tables(a.problem, a.workspace);
  for_each_with_sums(parallel, a.problem.boxes, a.problem.channels, [&](std::int64_t box, std::vector<float>& sums) {
    fill_box(a.problem, tables, box);
    if (a.problem.type == DataType::kBfloat16)
      pool_box<std::uint16_t>(a, tables, box, sums);
    else
      pool_box<float>(a, tables, box, sums);
  });
  return {};
}

Status roi_align_backward(const RoiAlignBackward& a, const Parallel& parallel) {
  if (Status status = check(a); !status.ok()) return status;
  const RoiAlignProblem& p = a.problem;
  const RoiTables tables = roi_tables(p, a.workspace);
  for_each_item(parallel, p.boxes, [&](int, std::int64_t box) { fill_box(p, tables, box); });
  const std::int64_t rows = p.images * p.height;
  for_each_with_sums(parallel, rows, p.width * p.channels, [&](std::int64_t row, std::vector<float>& sums) {
    if (p.type == DataType::kBfloat16)
      gather_row<std::uint16_t>(a, tables, row / p.height, row % p.height, sums);
    else
      gather_row<float>(a, tables, row / p.height, row % p.height, sums);
  });
  return {};
}

}  // namespace tessera::kernels::cpu
