// These kernels are memory-bound: each matrix is read once or written once. A row is in the registers of one warp (widths up to 1,024), of
// four warps, or of as many warps as it needs. A thread owns the same columns of all its rows, in pieces of eight, which it loads as words of
// 16 bytes if the rows are aligned to that. All words of a row are loaded before the first is used, so that many loads are in flight.
// Backward: a thread adds the sums over its rows in registers. The warps of a block add theirs in order, and each block writes its sums to
// the workspace [blocks, sums, width]. The last blocks add those of all blocks (last_block.h). The number of blocks depends only on the
// shape.
#include <algorithm>
#include <initializer_list>

#include "kernels/device/last_block.h"
#include "kernels/residual_norm/residual_norm.h"

namespace tessera::kernels {
namespace {

constexpr int kPiece = 8;       // adjacent elements of a row that a thread owns
constexpr int kMostPieces = 4;  // pieces of a row that a thread owns
constexpr int kMostWarps = 8;  // of a row: a thread needs up to 255 registers
constexpr int kWarpColumns = 32 * kPiece * kMostPieces;  // columns that a warp can own
constexpr int kRowsAtOnce = 4;                            // rows that a block processes at a time, if a row is one warp
constexpr std::int64_t kForwardBlocks = 132 * 16;
constexpr std::int64_t kBackwardBlocks = 132 * 2;
constexpr std::int64_t kLeastRowsPerWarp = 4;  // in the backward pass, so that blocks write fewer sums than they read rows
constexpr int kMostSums = 4;
static_assert(kMostWarps * kWarpColumns == kMostNormWidth);

/// How rows are divided among threads.
struct Division {
  int warps;          // of a row
  int rows_at_once;   // of a block
  std::int64_t blocks;
  unsigned threads() const { return static_cast<unsigned>(32 * warps * rows_at_once); }
};

Division division_of(std::int64_t rows, std::int64_t width, std::int64_t most_blocks, std::int64_t rows_per_warp) {
  const auto needed = static_cast<int>((width + kWarpColumns - 1) / kWarpColumns);
  const int warps = needed == 1 ? 1 : std::max(4, needed), at_once = needed == 1 ? kRowsAtOnce : 1;
  return {warps, at_once, std::min(most_blocks, (rows + at_once * rows_per_warp - 1) / (at_once * rows_per_warp))};
}

Division backward_division(std::int64_t rows, std::int64_t width) {
  return division_of(rows, width, kBackwardBlocks, kLeastRowsPerWarp);
}

/// The width of a row of sums in the workspace: whole words of 16 bytes.
TESSERA_HOST_DEVICE int padded_width(std::int64_t width) {
  return static_cast<int>((width + 3) / 4 * 4);
}

/// The workspace of the backward pass: counters, and then the blocks' sums.
std::int64_t counter_bytes(std::int64_t blocks) {
  return (block_sum_counters(blocks) * 4 + 15) / 16 * 16;
}

/// A thread's place in its row, and in the row's columns.
struct Place {
  std::int64_t first_row, row_step, width;
  int thread, threads;  // among the threads of the row
  bool aligned;         // whether rows consist of whole words of 16 bytes
  __device__ __forceinline__ std::int64_t column(int piece) const {
    return static_cast<std::int64_t>(piece * threads + thread) * kPiece;
  }
};

__device__ __forceinline__ Place place_of(std::int64_t width, int warps, bool aligned) {
  const int threads = 32 * warps, at_once = static_cast<int>(blockDim.x) / threads;
  const int thread = static_cast<int>(threadIdx.x);
  return {static_cast<std::int64_t>(blockIdx.x) * at_once + thread / threads, static_cast<std::int64_t>(gridDim.x) * at_once, width,
          thread % threads, threads, aligned};
}

/// A thread's elements of a row, as they are in memory.
template <class Element>
struct RowWords {
  static constexpr int kEach = kWordElements<Element>;
  Word pieces[kMostPieces][kPiece / kEach] = {};

  /// Loads the elements. A row may be missing (null).
  __device__ __forceinline__ void load(const Element* row, const Place& at) {
    if (row == nullptr) return;
#pragma unroll
    for (int p = 0; p < kMostPieces; ++p) {
      const std::int64_t column = at.column(p);
      if (column >= at.width) continue;
      if (at.aligned) {
#pragma unroll
        for (int k = 0; k < kPiece / kEach; ++k) pieces[p][k] = word_at<Word>(row + column + k * kEach);
      } else {
#pragma unroll
        for (int i = 0; i < kPiece; ++i)
          if (column + i < at.width) set_element(pieces[p][i / kEach], i % kEach, row[column + i]);
      }
    }
  }
  /// The element i of piece p. The caller has checked that its column exists.
  __device__ __forceinline__ float value(int p, int i) const { return element<Element>(pieces[p][i / kEach], i % kEach); }
};

/// Stores the elements of piece p that a row has.
template <class Element>
__device__ __forceinline__ void store(Element* row, const float (&values)[kPiece], int p, const Place& at) {
  const std::int64_t column = at.column(p);
  if (at.aligned) {
    constexpr int kEach = kWordElements<Element>;
#pragma unroll
    for (int k = 0; k < kPiece / kEach; ++k) {
      Word word = {};
#pragma unroll
      for (int i = 0; i < kEach; ++i) set_element(word, i, from_float<Element>(values[k * kEach + i]));
      store_word(row + column + k * kEach, word);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kPiece; ++i)
      if (column + i < at.width) row[column + i] = from_float<Element>(values[i]);
  }
}

/// Returns the sums of two values over the threads of a row. All threads of a block call this function together if a row has several warps.
__device__ __forceinline__ float2 row_sums(float2 value, const Place& at) {
  value.x = warp_sum(value.x);
  value.y = warp_sum(value.y);
  if (at.threads == 32) return value;
  __shared__ float2 of_warps[kMostWarps];
  __syncthreads();  // the sums of the call before have been read
  if (at.thread % 32 == 0) of_warps[at.thread / 32] = value;
  __syncthreads();
  float2 total = of_warps[0];
  for (int warp = 1; warp < at.threads / 32; ++warp) {
    total.x += of_warps[warp].x;
    total.y += of_warps[warp].y;
  }
  return total;
}

__device__ __forceinline__ float factor_of(const ResidualNormProblem& problem, std::int64_t row) {
  return problem.row_factor == nullptr ? 1.0f : problem.row_factor[row / problem.rows_per_factor];
}

template <class Stream, class Update, class Output>
__global__ void __launch_bounds__(kMostWarps * 32) add_and_normalize(ResidualNormForward call, int warps, bool aligned) {
  const ResidualNormProblem& problem = call.problem;
  const Place at = place_of(problem.width, warps, aligned);
  const auto* const weight = problem.weight;
  for (std::int64_t row = at.first_row; row < problem.rows; row += at.row_step) {
    const std::int64_t offset = row * problem.width;
    const auto row_of = [&](auto* matrix) { return matrix == nullptr ? matrix : matrix + offset; };
    RowWords<Stream> x;
    RowWords<Update> update;
    x.load(static_cast<const Stream*>(call.x) + offset, at);
    update.load(row_of(static_cast<const Update*>(call.update)), at);
    const float factor = factor_of(problem, row);
    float values[kMostPieces][kPiece];
    float total = 0.0f;
#pragma unroll
    for (int p = 0; p < kMostPieces; ++p) {
      const std::int64_t column = at.column(p);
      if (column >= at.width) continue;
#pragma unroll
      for (int i = 0; i < kPiece; ++i) {
        values[p][i] = 0.0f;
        if (column + i >= at.width) continue;
        values[p][i] = x.value(p, i);
        if (call.update == nullptr) continue;
        const float scale = problem.column_scale == nullptr ? factor : factor * problem.column_scale[column + i];
        values[p][i] = to_float(from_float<Stream>(values[p][i] + scale * update.value(p, i)));
      }
#pragma unroll
      for (int i = 0; i < kPiece; ++i) total += values[p][i];
      if (call.update != nullptr) store(static_cast<Stream*>(call.sum) + offset, values[p], p, at);
    }
    if (weight == nullptr) continue;
    const float mean = row_sums({total, 0.0f}, at).x / static_cast<float>(problem.width);
    float squares = 0.0f;
#pragma unroll
    for (int p = 0; p < kMostPieces; ++p) {
#pragma unroll
      for (int i = 0; i < kPiece; ++i) {
        if (at.column(p) + i >= at.width) continue;
        values[p][i] -= mean;
        squares += values[p][i] * values[p][i];
      }
    }
    const float rstd = 1.0f / sqrtf(row_sums({squares, 0.0f}, at).x / static_cast<float>(problem.width) + call.epsilon);
#pragma unroll
    for (int p = 0; p < kMostPieces; ++p) {
      const std::int64_t column = at.column(p);
      if (column >= at.width) continue;
#pragma unroll
      for (int i = 0; i < kPiece; ++i)
        if (column + i < at.width) values[p][i] = values[p][i] * rstd * weight[column + i] + call.bias[column + i];
      store(static_cast<Output*>(call.output) + offset, values[p], p, at);
    }
    if (at.thread != 0) continue;
    call.mean[row] = mean;
    call.rstd[row] = rstd;
  }
}

/// Where the sums over rows go. Those that are wanted come first, in the order of the kernel's calls of write_block_sum().
struct Results {
  float* to[kMostSums];
  int count;
};

/// Writes a block's sum of the columns that this thread owns to `to` [width]. `scratch` [rows at once, width] is shared memory, used if
/// the block processes several rows at once.
__device__ __forceinline__ void write_block_sum(const float (&sums)[kMostPieces][kPiece], float* to, float* scratch, const Place& at) {
  const int together = static_cast<int>(blockDim.x) / at.threads, mine = static_cast<int>(threadIdx.x) / at.threads;
  float* const own = together == 1 ? to : scratch + mine * at.width;
  if (together > 1) __syncthreads();  // the sums of the call before have been read
#pragma unroll
  for (int p = 0; p < kMostPieces; ++p) {
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      const std::int64_t column = at.column(p) + i;
      if (column < at.width) own[column] = sums[p][i];
    }
  }
  if (together == 1) return;
  __syncthreads();
  for (std::int64_t column = threadIdx.x; column < at.width; column += blockDim.x) {
    float total = scratch[column];
    for (int row = 1; row < together; ++row) total += scratch[row * at.width + column];
    to[column] = total;
  }
}

/// kScaled: whether the gradient of the column scale is needed.
template <class Stream, class Update, class Output, bool kScaled>
__global__ void __launch_bounds__(kMostWarps * 32) backpropagate(ResidualNormBackward call, int warps, bool aligned, Results results,
                                                                  BlockSums sums) {
  TESSERA_DYNAMIC_SHARED(shared);
  const ResidualNormProblem& problem = call.problem;
  const Place at = place_of(problem.width, warps, aligned);
  const float* const weight = problem.weight;
  float of_weight[kMostPieces][kPiece] = {}, of_bias[kMostPieces][kPiece] = {}, of_update[kMostPieces][kPiece] = {};
  float of_scale[kScaled ? kMostPieces : 1][kPiece] = {};
  for (std::int64_t row = at.first_row; row < problem.rows; row += at.row_step) {
    const std::int64_t offset = row * problem.width;
    const auto row_of = [&](auto* matrix) { return matrix == nullptr ? matrix : matrix + offset; };
    RowWords<Stream> sum, grad_sum;
    RowWords<Output> grad_output;
    if (weight != nullptr) {
      sum.load(static_cast<const Stream*>(call.sum) + offset, at);
      grad_output.load(static_cast<const Output*>(call.grad_output) + offset, at);
    }
    grad_sum.load(row_of(static_cast<const Stream*>(call.grad_sum)), at);
    const float mean = weight == nullptr ? 0.0f : call.mean[row], rstd = weight == nullptr ? 0.0f : call.rstd[row];
    const float factor = factor_of(problem, row);
    float2 totals = {0.0f, 0.0f};  // of the weighted gradient, and of its products with the normalized values
    if (weight != nullptr) {
#pragma unroll
      for (int p = 0; p < kMostPieces; ++p) {
#pragma unroll
        for (int i = 0; i < kPiece; ++i) {
          const std::int64_t column = at.column(p) + i;
          if (column >= at.width) continue;
          const float gradient = grad_output.value(p, i), unit = (sum.value(p, i) - mean) * rstd, weighted = gradient * weight[column];
          of_weight[p][i] += gradient * unit;
          of_bias[p][i] += gradient;
          totals.x += weighted;
          totals.y += weighted * unit;
        }
      }
      totals = row_sums(totals, at);
      totals.x /= static_cast<float>(problem.width);
      totals.y /= static_cast<float>(problem.width);
    }
    RowWords<Update> update;  // loaded last: all rows and sums together would not fit in the registers
    if constexpr (kScaled) update.load(static_cast<const Update*>(call.update) + offset, at);
#pragma unroll
    for (int p = 0; p < kMostPieces; ++p) {
      if (at.column(p) >= at.width) continue;
      float grad_x[kPiece], grad_update[kPiece];
#pragma unroll
      for (int i = 0; i < kPiece; ++i) {
        const std::int64_t column = at.column(p) + i;
        grad_x[i] = grad_update[i] = 0.0f;
        if (column >= at.width) continue;
        if (call.grad_sum != nullptr) grad_x[i] = grad_sum.value(p, i);
        if (weight != nullptr) {
          const float unit = (sum.value(p, i) - mean) * rstd;
          grad_x[i] += rstd * (grad_output.value(p, i) * weight[column] - totals.x - unit * totals.y);
        }
        const float of_row = factor * grad_x[i];
        grad_update[i] = problem.column_scale == nullptr ? of_row : of_row * problem.column_scale[column];
        of_update[p][i] += grad_update[i];
        if constexpr (kScaled) of_scale[p][i] += of_row * update.value(p, i);
      }
      if (call.grad_x != nullptr) store(static_cast<Stream*>(call.grad_x) + offset, grad_x, p, at);
      if (call.grad_update != nullptr) store(static_cast<Update*>(call.grad_update) + offset, grad_update, p, at);
    }
  }
  float* const scratch = reinterpret_cast<float*>(shared);
  if (results.count == 0) return;
  const int pitch = padded_width(problem.width);
  float* to = sums.partials + blockIdx.x * sums.pitch;
  const auto write = [&](const float* wanted, const float(&of_columns)[kMostPieces][kPiece]) {
    if (wanted == nullptr) return;
    write_block_sum(of_columns, to, scratch, at);
    to += pitch;
  };
  write(call.grad_weight, of_weight);
  write(call.grad_bias, of_bias);
  write(call.grad_update_bias, of_update);
  if constexpr (kScaled) write(call.grad_column_scale, of_scale);
  add_block_sums(sums, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x), results.count * pitch,
                 [width = problem.width, pitch, results](int first, const float(&totals)[4]) {
                   const int which = first / pitch, column = first - which * pitch;
                   float* const result = which < 2 ? (which == 0 ? results.to[0] : results.to[1])
                                                   : (which == 2 ? results.to[2] : results.to[3]);
#pragma unroll
                   for (int k = 0; k < 4; ++k)
                     if (column + k < width) result[column + k] = totals[k];
                 });
}

/// Whether all rows of the matrices consist of whole words of 16 bytes.
bool is_aligned(std::int64_t width, std::initializer_list<const void*> matrices) {
  return width % kPiece == 0 &&
         std::all_of(matrices.begin(), matrices.end(), [](const void* matrix) { return reinterpret_cast<std::uintptr_t>(matrix) % 16 == 0; });
}

template <class Stream, class Update, class Output>
struct Types {};

/// Calls start(Types<Stream, Update, Output>()) with the types of a problem, which check() has accepted.
template <class Start>
Status with_types(const ResidualNormProblem& problem, const Start& start) {
  const bool narrow_output = problem.output == DataType::kBfloat16;
  if (problem.update == DataType::kFloat32) return start(Types<float, float, float>());
  if (problem.stream == DataType::kFloat32)
    return narrow_output ? start(Types<float, Bfloat16, Bfloat16>()) : start(Types<float, Bfloat16, float>());
  return narrow_output ? start(Types<Bfloat16, Bfloat16, Bfloat16>()) : start(Types<Bfloat16, Bfloat16, float>());
}

template <class Stream, class Update, class Output>
Status start_forward(Types<Stream, Update, Output>, const ResidualNormForward& call, void* stream) {
  const Division division = division_of(call.problem.rows, call.problem.width, kForwardBlocks, 1);
  const bool aligned = is_aligned(call.problem.width, {call.x, call.update, call.sum, call.output});
  return launch("residual_norm forward", add_and_normalize<Stream, Update, Output>, dim3(static_cast<unsigned>(division.blocks)),
                division.threads(), 0, stream, call, division.warps, aligned);
}

template <class Stream, class Update, class Output>
Status start_backward(Types<Stream, Update, Output>, const ResidualNormBackward& call, void* stream) {
  const ResidualNormProblem& problem = call.problem;
  const Division division = backward_division(problem.rows, problem.width);
  const bool aligned =
      is_aligned(problem.width, {call.sum, call.update, call.grad_sum, call.grad_output, call.grad_x, call.grad_update});
  const std::size_t shared = division.rows_at_once == 1 ? 0 : static_cast<std::size_t>(division.rows_at_once * problem.width) * sizeof(float);
  Results results = {};
  for (float* const wanted : {call.grad_weight, call.grad_bias, call.grad_update_bias, call.grad_column_scale})
    if (wanted != nullptr) results.to[results.count++] = wanted;
  unsigned char* const memory = static_cast<unsigned char*>(call.workspace);
  const std::int64_t counters = counter_bytes(division.blocks);
  const BlockSums sums = {reinterpret_cast<unsigned*>(memory), reinterpret_cast<float*>(memory + counters),
                          kMostSums * padded_width(problem.width)};
  const char* const name = "residual_norm backward";
  if (results.count > 0)
    if (Status status = clear_bytes(name, sums.counters, static_cast<std::size_t>(counters), stream); !status.ok()) return status;
  const dim3 grid(static_cast<unsigned>(division.blocks));
  return call.grad_column_scale != nullptr
             ? launch(name, backpropagate<Stream, Update, Output, true>, grid, division.threads(), shared, stream, call, division.warps,
                      aligned, results, sums)
             : launch(name, backpropagate<Stream, Update, Output, false>, grid, division.threads(), shared, stream, call, division.warps,
                      aligned, results, sums);
}

}  // namespace

namespace TESSERA_DEVICE_NAMESPACE {

std::size_t residual_norm_workspace(std::int64_t rows, std::int64_t width) {
  if (rows < 1 || width < 1) return 0;
  const std::int64_t blocks = backward_division(rows, width).blocks;
  return static_cast<std::size_t>(counter_bytes(blocks) + blocks * kMostSums * padded_width(width) * 4);
}

Status residual_norm_forward(const ResidualNormForward& arguments, void* stream) {
  if (Status status = check(arguments); !status.ok() || arguments.problem.rows == 0) return status;
  return with_types(arguments.problem, [&](auto types) { return start_forward(types, arguments, stream); });
}

Status residual_norm_backward(const ResidualNormBackward& arguments, void* stream) {
  if (Status status = check(arguments); !status.ok() || arguments.problem.rows == 0) return status;
  return with_types(arguments.problem, [&](auto types) { return start_backward(types, arguments, stream); });
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
