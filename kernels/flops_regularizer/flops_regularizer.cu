// These kernels are memory-bound, so every access to the encoding and to its gradient moves 16 bytes, for any width of a row.
// Rows of V elements begin at different addresses modulo 16 bytes. These remainders repeat: in every `classes`-th row, the words of 16
// bytes begin at the same columns. So a block processes rows of one class, and a thread processes the same columns in each of these rows.
// Forward: A word at the edge of a row contains elements of the row before or after it, whose sums are not used. A block sums a tile of
// columns over a slice of its class's rows and writes the sums to the workspace. The last block of a tile adds the sums of all slices
// and classes in a fixed order. The last tile adds the squares of all tiles in a fixed order. The order depends only on the shape and the
// stride, so results are the same in every run.
// Backward: Each thread keeps the gradient of its columns in registers and writes it to one row after another.
#include <algorithm>
#include <numeric>

#include "kernels/device/last_block.h"
#include "kernels/device/words.h"
#include "kernels/flops_regularizer/flops_regularizer.h"

namespace tessera::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kRowsInFlight = 8;
constexpr int kForwardResident = 3;              // blocks per multiprocessor: 96 KiB in flight
constexpr std::int64_t kForwardBlocks = 132 * kForwardResident;  // one round on an H100; each block adds to the sums of the last ones
constexpr std::int64_t kBackwardBlocks = 2048;  // several rounds, so that all multiprocessors end at the same time

/// The columns of a forward block. Its words cover one more word, because they may begin up to kWordElements - 1 columns before the tile.
template <class Element>
constexpr std::int64_t kTileColumns = (kThreads - 1) * kWordElements<Element>;

/// How the rows of an array are divided among blocks. Block (x, y) has tile x, class y % classes and slice y / classes.
struct Division {
  int classes;            // rows r, r + classes, r + 2 classes, ... begin at the same address modulo 16 bytes
  int slices;             // each class is divided into this many slices
  std::int64_t per_slice;  // rows of a class in each slice but the last
  std::int64_t tiles;
};
Division divide(std::int64_t rows, std::int64_t row_stride, std::int64_t element_bytes, std::int64_t tiles, std::int64_t wanted_blocks) {
  const std::int64_t period = 16 / std::gcd<std::int64_t>(16, row_stride * element_bytes);
  const std::int64_t classes = std::max<std::int64_t>(1, std::min(period, rows));
  const std::int64_t class_rows = std::max<std::int64_t>(1, (rows + classes - 1) / classes);
  const std::int64_t wanted = std::max<std::int64_t>(1, wanted_blocks / (tiles * classes));
  const std::int64_t groups = (class_rows + kRowsInFlight - 1) / kRowsInFlight;
  const std::int64_t per_slice = (groups + wanted - 1) / wanted * kRowsInFlight;
  return {static_cast<int>(classes), static_cast<int>((class_rows + per_slice - 1) / per_slice), per_slice, tiles};
}

/// The rows of one block: first, first + classes, ..., `count` rows.
struct BlockRows {
  std::int64_t first, count;
};
__device__ __forceinline__ BlockRows rows_of_block(const Division& division, std::int64_t rows) {
  const std::int64_t row_class = blockIdx.y % division.classes, begin = blockIdx.y / division.classes * division.per_slice;
  const std::int64_t in_class = rows > row_class ? (rows - row_class - 1) / division.classes + 1 : 0;
  const std::int64_t left = in_class - begin;
  return {row_class + begin * division.classes, left < division.per_slice ? left : division.per_slice};
}

/// Returns how many elements the row lies behind an address that is a multiple of 16.
template <class Element>
__device__ __forceinline__ int shift_of(const void* data, std::int64_t row_stride, std::int64_t row) {
  const auto address = reinterpret_cast<std::uintptr_t>(static_cast<const Element*>(data) + row * row_stride);
  return static_cast<int>(address % 16 / sizeof(Element));
}

/// The parts of the workspace.
struct Scratch {
  unsigned* counters;   // [tiles + 1], 0 at the start: the blocks of each tile that are done, and the tiles that are done
  float* tile_squares;  // [tiles]
  float* sums;          // [slices, classes, tiles, kThreads * kWordElements], the sums of each thread's word
};
std::size_t rounded_to_word(std::int64_t numbers) {
  return static_cast<std::size_t>((numbers * 4 + 15) / 16 * 16);
}
Scratch scratch_in(void* workspace, std::int64_t tiles) {
  unsigned char* const bytes = static_cast<unsigned char*>(workspace);
  unsigned char* const squares = bytes + rounded_to_word(tiles + 1);
  return {reinterpret_cast<unsigned*>(bytes), reinterpret_cast<float*>(squares), reinterpret_cast<float*>(squares + rounded_to_word(tiles))};
}

/// Sums `value` over the threads of the block. Every thread gets the sum. All kThreads threads must call block_sum().
__device__ __forceinline__ float block_sum(float value) {
  __shared__ float warp_sums[kThreads / 32];
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.0f;
  for (int warp = 0; warp < kThreads / 32; ++warp) total += warp_sums[warp];
  return total;
}

/// Adds the elements in the columns column, column + 1, ... of the rows to `totals`. Each group of rows is summed separately, so that small
/// terms are not lost in a large total. The words begin at multiples of 16 bytes.
template <class Element>
__device__ __forceinline__ void add_rows(const FlopsForward& given, std::int64_t classes, const BlockRows& rows, std::int64_t column,
                                         float (&totals)[kWordElements<Element>]) {
  const std::int64_t end = (given.rows - 1) * given.row_stride + given.columns, step = classes * given.row_stride;
  std::int64_t at = rows.first * given.row_stride + column;  // where the word begins in the array
  for (std::int64_t left = rows.count; left > 0; left -= kRowsInFlight) {
    const int count = left < kRowsInFlight ? static_cast<int>(left) : kRowsInFlight;
    const Element* from = static_cast<const Element*>(given.encoding) + at;
    float sums[kWordElements<Element>] = {};
    if (at >= 0 && at + (count - 1) * step + kWordElements<Element> <= end) {
      Word words[kRowsInFlight];
#pragma unroll
      for (int r = 0; r < kRowsInFlight; ++r, from += step) words[r] = r < count ? load_once(from) : Word{};
#pragma unroll
      for (int r = 0; r < kRowsInFlight; ++r) {
#pragma unroll
        for (int i = 0; i < kWordElements<Element>; ++i) sums[i] += element<Element>(words[r], i);
      }
    } else {  // a word extends past the first or the last element of the array
#pragma unroll 1
      for (int r = 0; r < count; ++r, from += step) {
#pragma unroll
        for (int i = 0; i < kWordElements<Element>; ++i) {
          if (column + i >= 0 && column + i < given.columns) sums[i] += to_float(from[i]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kWordElements<Element>; ++i) totals[i] += sums[i];
    at += kRowsInFlight * step;
  }
}

template <class Element>
__global__ void __launch_bounds__(kThreads, kForwardResident) sum_columns(FlopsForward given, Division division, Scratch scratch) {
  constexpr int kWidth = kThreads * kWordElements<Element>;
  const BlockRows rows = rows_of_block(division, given.rows);
  const std::int64_t tile = blockIdx.x, first_column = tile * kTileColumns<Element>, columns_left = given.columns - first_column;
  const int columns = static_cast<int>(columns_left < kTileColumns<Element> ? columns_left : kTileColumns<Element>);
  const int own = static_cast<int>(threadIdx.x) * kWordElements<Element> - shift_of<Element>(given.encoding, given.row_stride, rows.first);
  if (own < columns) {
    float totals[kWordElements<Element>] = {};
    add_rows<Element>(given, division.classes, rows, first_column + own, totals);
    float* const to = scratch.sums + (blockIdx.y * division.tiles + tile) * kWidth + threadIdx.x * kWordElements<Element>;
#pragma unroll
    for (int i = 0; i < kWordElements<Element>; i += 4) {
      word_at<Piece<float, 4>>(to + i) = Piece<float, 4>{{totals[i], totals[i + 1], totals[i + 2], totals[i + 3]}};
    }
  }
  if (!is_last_block(scratch.counters + tile, gridDim.y)) return;

  constexpr int kOwned = kWordElements<Element>;  // columns threadIdx.x, threadIdx.x + kThreads, ... of the tile
  float totals[kOwned] = {};
#pragma unroll 2
  for (unsigned part = 0; part < gridDim.y; ++part) {
    const int shift = shift_of<Element>(given.encoding, given.row_stride, part % division.classes);
    const float* const from = scratch.sums + (part * division.tiles + tile) * kWidth + shift;
#pragma unroll
    for (int i = 0; i < kOwned; ++i) {
      const int column = static_cast<int>(threadIdx.x) + i * kThreads;
      if (column < columns) totals[i] += load_from_other_block(from + column);
    }
  }
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kOwned; ++i) {
    const int column = static_cast<int>(threadIdx.x) + i * kThreads;
    if (column >= columns) break;
    if (given.column_sum != nullptr) given.column_sum[first_column + column] = totals[i];
    if (given.column_mean == nullptr) continue;
    const float mean = totals[i] / static_cast<float>(given.rows);
    given.column_mean[first_column + column] = mean;
    squares += mean * mean;
  }
  if (given.loss == nullptr) return;
  squares = block_sum(squares);
  if (threadIdx.x == 0) scratch.tile_squares[tile] = squares;
  if (!is_last_block(scratch.counters + division.tiles, gridDim.x)) return;
  float loss = 0.0f;
  for (std::int64_t each = threadIdx.x; each < division.tiles; each += kThreads) {
    loss += load_from_other_block(scratch.tile_squares + each);
  }
  loss = block_sum(loss);
  if (threadIdx.x == 0) *given.loss = loss;
}

template <class Element>
__global__ void __launch_bounds__(kThreads) write_gradient(FlopsBackward given, Division division, float two_over_rows) {
  const BlockRows rows = rows_of_block(division, given.written_rows);
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kWordElements<Element> -
                              shift_of<Element>(given.grad_encoding, given.row_stride, rows.first);
  if (column >= given.columns) return;
  const float scale = two_over_rows * *given.grad_loss;
  union {
    Word word;
    Element elements[kWordElements<Element>];
  } gradient;
#pragma unroll
  for (int i = 0; i < kWordElements<Element>; ++i) {
    const bool inside = column + i >= 0 && column + i < given.columns;
    gradient.elements[i] = from_float<Element>(inside ? scale * given.column_mean[column + i] : 0.0f);
  }
  Element* to = static_cast<Element*>(given.grad_encoding) + rows.first * given.row_stride + column;
  const std::int64_t step = division.classes * given.row_stride;
  if (column >= 0 && column + kWordElements<Element> <= given.columns) {
    for (std::int64_t row = 0; row < rows.count; ++row, to += step) store_once(to, gradient.word);
  } else {
    for (std::int64_t row = 0; row < rows.count; ++row, to += step) {
#pragma unroll
      for (int i = 0; i < kWordElements<Element>; ++i) {
        if (column + i >= 0 && column + i < given.columns) to[i] = gradient.elements[i];
      }
    }
  }
}

std::int64_t tiles_of(std::int64_t columns, std::int64_t tile_columns) {
  return (columns + tile_columns - 1) / tile_columns;
}

template <class Element>
Division divide_forward(const FlopsForward& given) {
  return divide(given.rows, given.row_stride, sizeof(Element), tiles_of(given.columns, kTileColumns<Element>), kForwardBlocks);
}
Division divide_forward(const FlopsForward& given) {
  return given.type == DataType::kBfloat16 ? divide_forward<Bfloat16>(given) : divide_forward<float>(given);
}

dim3 grid_of(const Division& division) {
  return dim3(static_cast<unsigned>(division.tiles), static_cast<unsigned>(division.slices * division.classes));
}

template <class Element>
Status start_backward(const FlopsBackward& given, void* stream) {
  const std::int64_t elements = given.columns + kWordElements<Element> - 1;  // with the elements before the first column
  const std::int64_t tiles = tiles_of(elements, kThreads * kWordElements<Element>);
  const Division division = divide(given.written_rows, given.row_stride, sizeof(Element), tiles, kBackwardBlocks);
  return launch("flops_regularizer backward", write_gradient<Element>, grid_of(division), kThreads, 0, stream, given, division,
                2.0f / static_cast<float>(given.rows));
}

}  // namespace

namespace TESSERA_DEVICE_NAMESPACE {

std::size_t flops_workspace(const FlopsForward& arguments) {
  if (arguments.rows < 0 || arguments.columns < 1) return 0;
  const Division division = divide_forward(arguments);
  const std::int64_t width = kThreads * 16 / static_cast<std::int64_t>(size_of(arguments.type));
  return rounded_to_word(division.tiles + 1) + rounded_to_word(division.tiles) +
         rounded_to_word(division.slices * division.classes * division.tiles * width);
}

Status flops_forward(const FlopsForward& arguments, void* stream) {
  if (Status status = check(arguments); !status.ok()) return status;
  if (arguments.workspace == nullptr) return Status::failure("flops_regularizer: workspace is a null pointer");
  const Division division = divide_forward(arguments);
  const Scratch scratch = scratch_in(arguments.workspace, division.tiles);
  const char* const name = "flops_regularizer forward";
  Status status = clear_bytes(name, scratch.counters, rounded_to_word(division.tiles + 1), stream);
  if (!status.ok()) return status;
  return arguments.type == DataType::kBfloat16
             ? launch(name, sum_columns<Bfloat16>, grid_of(division), kThreads, 0, stream, arguments, division, scratch)
             : launch(name, sum_columns<float>, grid_of(division), kThreads, 0, stream, arguments, division, scratch);
}

Status flops_backward(const FlopsBackward& arguments, void* stream) {
  if (Status status = check(arguments); !status.ok() || arguments.rows == 0 || arguments.written_rows == 0) return status;
  return arguments.type == DataType::kBfloat16 ? start_backward<Bfloat16>(arguments, stream) : start_backward<float>(arguments, stream);
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
