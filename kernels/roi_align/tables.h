#pragma once

#include "kernels/roi_align/axis.h"
#include "kernels/roi_align/roi_align.h"

namespace tessera::kernels {
namespace {

/// The weights of the bins of every box along both axes. They are stored in the workspace.
struct RoiTables {
  float* rows;              // [K, bin_rows, H]
  float* columns;           // [K, bin_columns, W]
  CellRange* row_cells;     // [K, bin_rows]
  CellRange* column_cells;  // [K, bin_columns]
};

inline RoiTables roi_tables(const RoiAlignProblem& p, void* workspace) {
  RoiTables tables;
  tables.rows = static_cast<float*>(workspace);
  tables.columns = tables.rows + p.boxes * p.bin_rows * p.height;
  tables.row_cells = reinterpret_cast<CellRange*>(tables.columns + p.boxes * p.bin_columns * p.width);
  tables.column_cells = tables.row_cells + p.boxes * p.bin_rows;
  return tables;
}

/// Fills in the weights of one bin of a box. If bin < bin_rows, it is a row bin. Otherwise it is the column bin with
/// the number bin - bin_rows.
TESSERA_HOST_DEVICE inline void fill_bin(const RoiAlignProblem& p, const RoiTables& tables, std::int64_t box,
                                         std::int64_t bin) {
  const float* const corners = p.corners + box * 4;
  // `nowhere` is 0 if all coordinates are finite, otherwise NaN. axis_weights() gets a corner plus `nowhere`, so that a
  // coordinate that is not finite makes the box's weights along both axes NaN.
  const float nowhere =
      (corners[0] - corners[0]) + (corners[1] - corners[1]) + (corners[2] - corners[2]) + (corners[3] - corners[3]);
  const bool of_rows = bin < p.bin_rows;
  const std::int64_t bins = of_rows ? p.bin_rows : p.bin_columns, size = of_rows ? p.height : p.width;
  const std::int64_t own = of_rows ? bin : bin - p.bin_rows, at = box * bins + own;
  (of_rows ? tables.row_cells : tables.column_cells)[at] =
      axis_weights(corners[of_rows ? 1 : 0] + nowhere, corners[of_rows ? 3 : 2], own, bins, p.sampling_ratio, p.aligned,
                   size, (of_rows ? tables.rows : tables.columns) + at * size);
}

}  // namespace
}  // namespace tessera::kernels
