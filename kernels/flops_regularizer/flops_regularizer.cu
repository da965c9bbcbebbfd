// These kernels are memory-bound.
// Column sums: A block processes a tile of columns and a slice of the rows. Each thread loads one piece of 4, 8 or 16
// bytes per row, as wide as the alignment of the rows allows, with eight loads in flight. The sums of all slices go to
// a workspace of [slices, V] floats. A second kernel adds them in order, so that results are the same in every run. The
// slices depend only on the shape.
// Backward: Each thread keeps the gradient of its columns in registers and writes it to one row after another.
#include <algorithm>

#include "kernels/device/primitives.h"
#include "kernels/flops_regularizer/flops_regularizer.h"

namespace tessera::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kRowsInFlight = 8;
constexpr std::int64_t kWantedBlocks = 2048;  // several per multiprocessor on the largest GPUs
constexpr std::int64_t kMostSlices = 256;

struct Slices {
  std::int64_t count, rows;  // number of slices, and rows per slice (the last slice may have fewer)
};
Slices slices_of(std::int64_t rows, std::int64_t columns) {
  const std::int64_t column_blocks = (columns + 4 * kThreads - 1) / (4 * kThreads);
  const std::int64_t wanted = std::min({kMostSlices, (kWantedBlocks + column_blocks - 1) / column_blocks,
                                        (rows + 4 * kRowsInFlight - 1) / (4 * kRowsInFlight)});
  const std::int64_t count = std::max<std::int64_t>(1, wanted);
  const std::int64_t per_slice = std::max<std::int64_t>(1, (rows + count - 1) / count);
  return {std::max<std::int64_t>(1, (rows + per_slice - 1) / per_slice), per_slice};
}

constexpr int kFinishThreads = 256;
std::int64_t finish_blocks(std::int64_t columns) {
  return (columns + kFinishThreads - 1) / kFinishThreads;
}

template <class Element, int kCount>
__global__ void __launch_bounds__(kThreads) sum_slices(const Element* encoding, std::int64_t rows, std::int64_t columns,
                                                       std::int64_t row_stride, std::int64_t slice_rows, float* sums) {
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kCount;
  if (column >= columns) return;
  const std::int64_t first = blockIdx.y * slice_rows;
  const std::int64_t end = first + slice_rows < rows ? first + slice_rows : rows;
  const Element* const from = encoding + column;
  float totals[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) totals[i] = 0.0f;
  std::int64_t row = first;
  for (; row + kRowsInFlight <= end; row += kRowsInFlight) {
    Piece<Element, kCount> pieces[kRowsInFlight];
#pragma unroll
    for (int r = 0; r < kRowsInFlight; ++r) {
      pieces[r] = word_at<Piece<Element, kCount>>(from + (row + r) * row_stride);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      float sum = 0.0f;  // each group of rows is summed separately, so that small terms are not lost in a large total
#pragma unroll
      for (int r = 0; r < kRowsInFlight; ++r) sum += to_float(pieces[r].values[i]);
      totals[i] += sum;
    }
  }
  for (; row < end; ++row) {
    const auto piece = word_at<Piece<Element, kCount>>(from + row * row_stride);
#pragma unroll
    for (int i = 0; i < kCount; ++i) totals[i] += to_float(piece.values[i]);
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) sums[blockIdx.y * columns + column + i] = totals[i];
}

__global__ void __launch_bounds__(kFinishThreads)
    add_slices(const float* sums, std::int64_t slices, std::int64_t columns, float* column_sum) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kFinishThreads + threadIdx.x;
  if (column >= columns) return;
  float total = 0.0f;
  for (std::int64_t slice = 0; slice < slices; ++slice) total += sums[slice * columns + column];
  column_sum[column] = total;
}

/// Sums `value` over the threads of the block. Every thread gets the sum. All kFinishThreads threads must call block_sum().
__device__ __forceinline__ float block_sum(float value) {
  __shared__ float warp_sums[kFinishThreads / 32];
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.0f;
  for (int warp = 0; warp < kFinishThreads / 32; ++warp) total += warp_sums[warp];
  return total;
}

__global__ void __launch_bounds__(kFinishThreads)
    means_and_squares(const float* column_sum, std::int64_t columns, float rows, float* column_mean,
                      float* block_squares) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kFinishThreads + threadIdx.x;
  float mean = 0.0f;
  if (column < columns) {
    mean = column_sum[column] / rows;
    column_mean[column] = mean;
  }
  const float squares = block_sum(mean * mean);
  if (threadIdx.x == 0) block_squares[blockIdx.x] = squares;
}

__global__ void __launch_bounds__(kFinishThreads)
    add_squares(const float* block_squares, std::int64_t blocks, float* loss) {
  float total = 0.0f;
  for (std::int64_t block = threadIdx.x; block < blocks; block += kFinishThreads) total += block_squares[block];
  total = block_sum(total);
  if (threadIdx.x == 0) *loss = total;
}

template <class Element, int kCount>
__global__ void __launch_bounds__(kThreads)
    write_gradient(const float* column_mean, const float* grad_loss, float two_over_rows, std::int64_t rows,
                   std::int64_t columns, std::int64_t row_stride, std::int64_t slice_rows, Element* grad_encoding) {
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kCount;
  if (column >= columns) return;
  const float scale = two_over_rows * *grad_loss;
  Piece<Element, kCount> piece;
#pragma unroll
  for (int i = 0; i < kCount; ++i) piece.values[i] = from_float<Element>(scale * column_mean[column + i]);
  const std::int64_t first = blockIdx.y * slice_rows;
  const std::int64_t end = first + slice_rows < rows ? first + slice_rows : rows;
  for (std::int64_t row = first; row < end; ++row) {
    word_at<Piece<Element, kCount>>(grad_encoding + row * row_stride + column) = piece;
  }
}

/// Returns how many adjacent elements a thread can load at once: 16 bytes of elements, or fewer if the base address,
/// the distance between rows or the width of a row is not a multiple of 16 bytes.
int piece_size(const void* data, std::int64_t row_stride, std::int64_t columns, std::int64_t element_bytes) {
  int count = static_cast<int>(16 / element_bytes);
  while (count > 1 && (reinterpret_cast<std::uintptr_t>(data) % (count * element_bytes) != 0 ||
                       row_stride % count != 0 || columns % count != 0)) {
    count /= 2;
  }
  return count;
}

template <class Element, int kCount>
Status start_sums(const FlopsColumnSums& given, void* stream) {
  const Slices slices = slices_of(given.rows, given.columns);
  const std::int64_t column_blocks = (given.columns + kCount * kThreads - 1) / (kCount * kThreads);
  float* const sums = slices.count == 1 ? given.column_sum : static_cast<float*>(given.workspace);
  if (sums == nullptr) return Status::failure("flops_regularizer: workspace is a null pointer");
  Status status = launch("flops_regularizer column sums", sum_slices<Element, kCount>,
                         dim3(static_cast<unsigned>(column_blocks), static_cast<unsigned>(slices.count)), kThreads, 0,
                         stream, static_cast<const Element*>(given.encoding), given.rows, given.columns,
                         given.row_stride, slices.rows, sums);
  if (!status.ok() || slices.count == 1) return status;
  return launch("flops_regularizer column sums", add_slices, dim3(static_cast<unsigned>(finish_blocks(given.columns))),
                kFinishThreads, 0, stream, static_cast<const float*>(sums), slices.count, given.columns,
                given.column_sum);
}

template <class Element, int kCount>
Status start_backward(const FlopsBackward& given, void* stream) {
  const Slices slices = slices_of(given.rows, given.columns);
  const std::int64_t column_blocks = (given.columns + kCount * kThreads - 1) / (kCount * kThreads);
  return launch("flops_regularizer backward", write_gradient<Element, kCount>,
                dim3(static_cast<unsigned>(column_blocks), static_cast<unsigned>(slices.count)), kThreads, 0, stream,
                given.column_mean, given.grad_loss, 2.0f / static_cast<float>(given.rows), given.rows,
                given.columns, given.row_stride, slices.rows, static_cast<Element*>(given.grad_encoding));
}

/// Starts the kernel for pieces of `count` elements. A piece has at most 16 bytes, which are four floats or eight
/// bfloat16.
template <class Element, int kCount = 16 / sizeof(Element)>
Status sums_with_pieces_of(int count, const FlopsColumnSums& given, void* stream) {
  if constexpr (kCount > 1) {
    if (count < kCount) return sums_with_pieces_of<Element, kCount / 2>(count, given, stream);
  }
  return start_sums<Element, kCount>(given, stream);
}
template <class Element, int kCount = 16 / sizeof(Element)>
Status backward_with_pieces_of(int count, const FlopsBackward& given, void* stream) {
  if constexpr (kCount > 1) {
    if (count < kCount) return backward_with_pieces_of<Element, kCount / 2>(count, given, stream);
  }
  return start_backward<Element, kCount>(given, stream);
}

}  // namespace

namespace TESSERA_DEVICE_NAMESPACE {

std::size_t flops_workspace(std::int64_t rows, std::int64_t columns) {
  if (rows < 0 || columns < 1) return 0;
  return static_cast<std::size_t>(std::max(slices_of(rows, columns).count * columns, finish_blocks(columns))) *
         sizeof(float);
}

Status flops_column_sums(const FlopsColumnSums& arguments, void* stream) {
  if (Status status = check(arguments); !status.ok()) return status;
  const int count = piece_size(arguments.encoding, arguments.row_stride, arguments.columns,
                               static_cast<std::int64_t>(size_of(arguments.type)));
  return arguments.type == DataType::kBfloat16 ? sums_with_pieces_of<Bfloat16>(count, arguments, stream)
                                               : sums_with_pieces_of<float>(count, arguments, stream);
}

Status flops_from_sums(const FlopsFromSums& arguments, void* stream) {
  if (Status status = check(arguments); !status.ok()) return status;
  if (arguments.workspace == nullptr) return Status::failure("flops_regularizer: workspace is a null pointer");
  float* const squares = static_cast<float*>(arguments.workspace);
  const std::int64_t blocks = finish_blocks(arguments.columns);
  Status status = launch("flops_regularizer means", means_and_squares, dim3(static_cast<unsigned>(blocks)),
                         kFinishThreads, 0, stream, arguments.column_sum, arguments.columns,
                         static_cast<float>(arguments.rows), arguments.column_mean, squares);
  if (!status.ok()) return status;
  return launch("flops_regularizer loss", add_squares, dim3(1), kFinishThreads, 0, stream,
                static_cast<const float*>(squares), blocks, arguments.loss);
}

Status flops_backward(const FlopsBackward& arguments, void* stream) {
  if (Status status = check(arguments); !status.ok() || arguments.rows == 0) return status;
  const int count = piece_size(arguments.grad_encoding, arguments.row_stride, arguments.columns,
                               static_cast<std::int64_t>(size_of(arguments.type)));
  return arguments.type == DataType::kBfloat16 ? backward_with_pieces_of<Bfloat16>(count, arguments, stream)
                                               : backward_with_pieces_of<float>(count, arguments, stream);
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
