// These kernels are memory-bound. First, one thread for each bin and axis writes the weights of the bin's cells. Both
// passes read these weights, and all threads of a block read the same ones.
// Forward: A block processes one bin and some channels. Backward: A block processes one cell and some channels. It
// gathers the cell's gradient from the boxes of the cell's image, in the order of the boxes. So no two threads write to
// one place, and every run gives the same result.
#include "kernels/device/primitives.h"
#include "kernels/roi_align/roi_align.h"
#include "kernels/roi_align/tables.h"

namespace tessera::kernels {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) fill_tables(RoiAlignProblem p, RoiTables tables) {
  const std::int64_t bins = p.bin_rows + p.bin_columns;
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (item < p.boxes * bins) fill_bin(p, tables, item / bins, item % bins);
}

template <class Element>
__global__ void __launch_bounds__(kThreads) pool_bins(RoiAlignForward a, RoiTables tables) {
  const RoiAlignProblem& p = a.problem;
  const std::int64_t channel = static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (channel >= p.channels) return;
  const std::int64_t bin = blockIdx.x, row = bin / p.bin_columns;
  const std::int64_t box = row / p.bin_rows, column = box * p.bin_columns + bin % p.bin_columns;
  const std::int64_t image = p.image[box];
  const bool exists = image >= 0 && image < p.images;
  const CellRange rows = exists ? tables.row_cells[row] : CellRange(), columns = tables.column_cells[column];
  float sum = exists ? 0.0f : NAN;  // NaN for a wrong image index; reporting an error would mean waiting for the device
  for (std::int64_t y = rows.begin; y < rows.end; ++y) {
    const Element* const cells =
        static_cast<const Element*>(a.features) + ((image * p.height + y) * p.width) * p.channels + channel;
    const float* const weights = tables.columns + column * p.width;
    float of_row = 0.0f;
    for (std::int64_t x = columns.begin; x < columns.end; ++x) of_row += weights[x] * to_float(cells[x * p.channels]);
    sum += tables.rows[row * p.height + y] * of_row;
  }
  static_cast<Element*>(a.out)[bin * p.channels + channel] = from_float<Element>(sum);
}

template <class Element>
__global__ void __launch_bounds__(kThreads) gather_cells(RoiAlignBackward a, RoiTables tables) {
  const RoiAlignProblem& p = a.problem;
  const std::int64_t channel = static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (channel >= p.channels) return;
  const std::int64_t cell = blockIdx.x, x = cell % p.width, y = cell / p.width % p.height;
  const std::int64_t image = cell / p.width / p.height, end = a.first[image + 1];
  float sum = 0.0f;
  for (std::int64_t i = a.first[image]; i < end; ++i) {
    const std::int64_t box = a.order[i];
    for (std::int64_t row = box * p.bin_rows; row < (box + 1) * p.bin_rows; ++row) {
      const CellRange rows = tables.row_cells[row];
      if (y < rows.begin || y >= rows.end) continue;
      const Element* const gradient =
          static_cast<const Element*>(a.gradient) + row * p.bin_columns * p.channels + channel;
      float of_row = 0.0f;
      for (std::int64_t bin = 0; bin < p.bin_columns; ++bin) {
        const float weight = tables.columns[(box * p.bin_columns + bin) * p.width + x];
        if (weight != 0.0f) of_row += weight * to_float(gradient[bin * p.channels]);
      }
      sum += tables.rows[row * p.height + y] * of_row;
    }
  }
  static_cast<Element*>(a.of_features)[cell * p.channels + channel] = from_float<Element>(sum);
}

/// Starts a grid with one row of blocks for each of the `items`. A row of blocks has one thread for each channel.
template <class... Parameters, class... Arguments>
Status start(std::int64_t items, std::int64_t channels, void (*kernel)(Parameters...), void* stream,
             const Arguments&... arguments) {
  constexpr std::int64_t kMostInSecond = 65535;
  const std::int64_t channel_blocks = (channels + kThreads - 1) / kThreads;
  if (items > kMostBlocks || channel_blocks > kMostInSecond)
    return Status::failure("roi_align: " + std::to_string(items) + " bins or cells of " + std::to_string(channels) +
                           " channels are too many for one launch");
  return launch("roi_align", kernel, dim3(static_cast<unsigned>(items), static_cast<unsigned>(channel_blocks)),
                kThreads, 0, stream, arguments...);
}

Status start_tables(const RoiAlignProblem& p, const RoiTables& tables, void* stream) {
  if (p.boxes == 0) return {};
  const std::int64_t items = p.boxes * (p.bin_rows + p.bin_columns);
  return start((items + kThreads - 1) / kThreads, 1, fill_tables, stream, p, tables);
}

}  // namespace

namespace TESSERA_DEVICE_NAMESPACE {

Status roi_align_forward(const RoiAlignForward& a, void* stream) {
  if (Status status = check(a); !status.ok() || a.problem.boxes == 0) return status;
  const RoiAlignProblem& p = a.problem;
  const RoiTables tables = roi_tables(p, a.workspace);
  if (Status status = start_tables(p, tables, stream); !status.ok()) return status;
  return start(p.boxes * p.bin_rows * p.bin_columns, p.channels,
               p.type == DataType::kBfloat16 ? pool_bins<Bfloat16> : pool_bins<float>, stream, a, tables);
}

Status roi_align_backward(const RoiAlignBackward& a, void* stream) {
  if (Status status = check(a); !status.ok()) return status;
  const RoiAlignProblem& p = a.problem;
  const RoiTables tables = roi_tables(p, a.workspace);
  if (Status status = start_tables(p, tables, stream); !status.ok()) return status;
  return start(p.images * p.height * p.width, p.channels,
               p.type == DataType::kBfloat16 ? gather_cells<Bfloat16> : gather_cells<float>, stream, a, tables);
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
