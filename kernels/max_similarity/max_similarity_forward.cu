// The kernel for most problems on Hopper GPUs is in max_similarity_forward_hopper.cu.
// The forward pass. A first kernel packs the kept rows (packed_rows.h), so that the products need not handle masks, odd
// widths or float32. In the second kernel, a block of 8 warps processes one image and a few texts. Each column of warps
// processes one text, and each row of warps processes 64 patches. A warp multiplies its 64 patches by all tokens of its
// text; texts of more than 80 tokens are processed in pieces. The width is read in slices of 64 bytes through
// double-buffered shared memory, and products stay in registers (tensor cores).
// From the registers, each lane finds the best token of each of its patches, which is the token with the largest
// product. The lane carries the best token over from one piece of the text to the next. Each lane also finds the best
// patch of each of its tokens. Shuffles merge the best patches of the lanes. Shared memory holds the best patches so
// far, because an image may have more patches than a block processes at a time. Sixteen consecutive blocks share their
// texts, which then come from the L2 cache. Tiles without kept rows are not multiplied. Only the similarities and the
// positions are written to global memory.
#include <algorithm>

#include "kernels/device/current_device.h"
#include "kernels/max_similarity/forward.h"

namespace tessera::kernels {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
/// The number of threads that copy a slice of a row. Each thread copies 16 bytes.
constexpr int kRowVectors = 4;
/// The number of 16-row tiles per warp. Together they have 64 patches.
constexpr int kRowTiles = 4;
constexpr int kWarpRows = 16 * kRowTiles;
/// Number of consecutive images whose blocks process the same texts.
constexpr int kImagesTogether = 16;

/// The layout of a block, which has kRowWarps x kTexts warps. Shared memory holds the staging area, the source of each
/// staged row, the lengths of the texts, the sums, and the best patches.
template <int kRowWarps, int kColumnTiles>
struct ForwardLayout {
  static constexpr int kTexts = kWarps / kRowWarps;
  static constexpr int kRows = kWarpRows * kRowWarps, kColumns = 8 * kColumnTiles;
  static constexpr int kPitch = WidthStage<Bfloat16>::kPitch;
  static constexpr int kStageRows = kRows + kTexts * kColumns;
  static constexpr int kStageElements = kStageRows * kPitch;
  static constexpr int kStageBytes = 2 * kStageElements * static_cast<int>(sizeof(Bfloat16));
  static_assert(kRows % (kThreads / kRowVectors) == 0 && kStageRows % (kThreads / kRowVectors) == 0,
                "each thread copies one side's rows at a time");
  static std::size_t bytes(std::int64_t tokens) {
    return kStageBytes + (kStageRows + kTexts) * sizeof(int) + kWarps * sizeof(float) + kWarps * tokens * sizeof(Best);
  }
};

/// Which rows (kept patches) and columns (kept tokens) of a warp's tile exist. The tile's row i exists if i < rows, and
/// its column j exists if j < columns.
struct Extent {
  int first_row, rows;        // rows: (number of the image's kept patches) - first_row; may be negative or exceed the tile
  int first_column, columns;  // columns: (number of the text's kept tokens) - first_column; may be negative or exceed the tile
};

/// Finds the best token of each row and the best patch of each column of the products. `check` becomes NaN if any
/// product is NaN or infinite.
template <int kColumnTiles>
__device__ __forceinline__ void fold(const float (&sums)[kRowTiles][kColumnTiles][4], const Extent& extent,
                                     Best (&row_best)[kRowTiles][2], Best* column_best, float& check) {
  const int lane = threadIdx.x % 32, lane_row = lane / 4, lane_column = lane % 4 * 2;
#pragma unroll
  for (int j = 0; j < kColumnTiles; ++j) {
    if (8 * j >= extent.columns) continue;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int column = 8 * j + lane_column + c;
      const bool exists = column < extent.columns;
      Best top{-kInfinity, 0};
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        if (16 * i >= extent.rows) continue;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float value = sums[i][j][2 * half + c];
          const int row = 16 * i + 8 * half + lane_row;
          check = fmaf(value, 0.0f, check);
          if (exists && value > row_best[i][half].value) row_best[i][half] = {value, extent.first_column + column};
          if (row < extent.rows && value > top.value) top = {value, row - lane_row};  // row - lane_row is a compile-time constant
        }
      }
      top.index += extent.first_row + lane_row;  // if all values are -infinity, column_best's initial index 0 wins the tie
      top = best_of_lanes(top, 4, 32);
      if (lane >= 4 || !exists) continue;
      Best& kept = column_best[extent.first_column + column];
      kept = better(kept, top);
    }
  }
}

template <int kRowWarps, int kColumnTiles>
__global__ void __launch_bounds__(kThreads, kColumnTiles > 4 ? 1 : 2) compare_rows(ForwardArguments arguments) {
  using Layout = ForwardLayout<kRowWarps, kColumnTiles>;
  using Stage = WidthStage<Bfloat16>;
  constexpr int kTexts = Layout::kTexts;
  TESSERA_DYNAMIC_SHARED(memory);
  Bfloat16* const staging = reinterpret_cast<Bfloat16*>(memory);
  int* const sources = reinterpret_cast<int*>(memory + Layout::kStageBytes);  // [kStageRows]
  int* const lengths = sources + Layout::kStageRows;                          // [kTexts], number of kept tokens
  float* const row_sums = reinterpret_cast<float*>(lengths + kTexts);         // [kRowWarps, kTexts]
  Best* const bests = reinterpret_cast<Best*>(row_sums + kWarps);             // [kRowWarps, kTexts, L]
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row_warp = warp / kTexts, text_warp = warp % kTexts;
  const PackedRows &patches = arguments.patches, &tokens = arguments.tokens;
  const std::int64_t group = blockIdx.x / kImagesTogether;
  const std::int64_t image = group / arguments.text_tiles * kImagesTogether + blockIdx.x % kImagesTogether;
  if (image >= arguments.images) return;
  const std::int64_t first_text = group % arguments.text_tiles * kTexts, text = first_text + text_warp;
  const int patch_count = patches.counts[image];
  if (threadIdx.x < kTexts) {
    lengths[threadIdx.x] = first_text + threadIdx.x < arguments.texts ? tokens.counts[first_text + threadIdx.x] : 0;
  }
  __syncthreads();
  int longest = 0;
  for (int t = 0; t < kTexts; ++t) longest = lengths[t] > longest ? lengths[t] : longest;
  const int token_count = lengths[text_warp];
  const std::int64_t place = image * arguments.texts + text;
  Best* const column_best = bests + warp * tokens.size;
  for (int token = lane; token < token_count; token += 32) column_best[token] = {-kInfinity, 0};
  __syncwarp();

  float row_sum = 0.0f;
  for (int patch0 = 0; patch0 < patch_count; patch0 += Layout::kRows) {
    Extent extent;
    extent.first_row = patch0 + kWarpRows * row_warp;
    extent.rows = patch_count - extent.first_row;
    unsigned row_tiles = 0;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) row_tiles |= 16 * i < extent.rows ? 1u << i : 0u;
    Best row_best[kRowTiles][2];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) row_best[i][0] = row_best[i][1] = {-kInfinity, 0};

    for (int token0 = 0; token0 < longest; token0 += Layout::kColumns) {
      extent.first_column = token0;
      extent.columns = token_count - token0;
      const int warp_column = text_warp * Layout::kColumns;
      const WarpTiles tiles{kWarpRows * row_warp, 16, row_tiles, warp_column, 8, warp_column + extent.columns};
      // The source of a staged row is the index of the row to copy, among the rows of the image or of the block's texts.
      // A source of -1 means a row of zeros.
      for (int row = threadIdx.x; row < Layout::kStageRows; row += kThreads) {
        const int column = row - Layout::kRows, token = token0 + column % Layout::kColumns;
        if (column < 0) {
          sources[row] = patch0 + row < patch_count ? patch0 + row : -1;
        } else {
          const int t = column / Layout::kColumns;
          sources[row] = token < lengths[t] ? t * tokens.size + token : -1;
        }
      }
      __syncthreads();
      float sums[kRowTiles][kColumnTiles][4];
      clear(sums);
      // If a row has two parts, there are three products: upper with upper, upper with lower, and lower with upper.
      const int products = patches.parts == 1 ? 1 : 3;
      pipeline(
          products * arguments.slices,
          [&](int step, int buffer) {
            const int product = step / arguments.slices;
            const int vector = threadIdx.x % kRowVectors * (Stage::kDepth / kRowVectors),
                      first = threadIdx.x / kRowVectors;
            const int column = step % arguments.slices * Stage::kDepth + vector;
            const Bfloat16* const image_row = patches.row(image, 0) + (product == 2 ? patches.part_width : 0) + column;
            const Bfloat16* const text_row =
                tokens.row(first_text, 0) + (product == 1 ? tokens.part_width : 0) + column;
            Bfloat16* const to = staging + buffer * Layout::kStageElements + first * Stage::kPitch + vector;
#pragma unroll
            for (int row = 0; row < Layout::kStageRows; row += kThreads / kRowVectors) {
              const int source = sources[row + first];
              const Bfloat16* const from = row < Layout::kRows ? image_row : text_row;
              copy_async(to + row * Stage::kPitch,
                         from + (source < 0 ? 0 : static_cast<std::int64_t>(source) * patches.row_elements()),
                         source >= 0);
            }
          },
          [&](int, int buffer) {
            const Bfloat16* const from = staging + buffer * Layout::kStageElements;
            accumulate<DepthAlong::kRow, DepthAlong::kRow>(sums, tiles, Stage::kDepth, from, Stage::kPitch,
                                                           from + Layout::kRows * Stage::kPitch, Stage::kPitch);
          });
      fold(sums, extent, row_best, column_best, row_sum);
    }

#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Best best = best_of_lanes(row_best[i][half], 1, 4);
        const int row = 16 * i + 8 * half + lane / 4;
        if (lane % 4 != 0 || row >= extent.rows || token_count == 0) continue;
        row_sum += best.value;
        const int patch = patches.kept[image * patches.size + extent.first_row + row];
        arguments.best_token[place * patches.size + patch] = tokens.kept[text * tokens.size + best.index];
      }
    }
  }
  row_sum = warp_sum(row_sum);
  if (lane == 0) row_sums[warp] = row_sum;
  __syncthreads();
  if (row_warp > 0 || text >= arguments.texts) return;

  float i2t = 0.0f, t2i = 0.0f;
  const bool pairs = patch_count > 0 && token_count > 0;
  if (pairs) {
    for (int token = lane; token < token_count; token += 32) {
      Best best = column_best[token];
#pragma unroll
      for (int w = 1; w < kRowWarps; ++w) best = better(best, column_best[w * kTexts * tokens.size + token]);
      t2i += best.value;
      arguments.best_patch[place * tokens.size + tokens.kept[text * tokens.size + token]] =
          patches.kept[image * patches.size + best.index];
    }
#pragma unroll
    for (int w = 0; w < kRowWarps; ++w) i2t += row_sums[w * kTexts + text_warp];
    i2t /= static_cast<float>(patch_count);
    t2i = warp_sum(t2i) / static_cast<float>(token_count) + (i2t - i2t);  // i2t - i2t makes t2i NaN if i2t is NaN; otherwise it is 0
  }
  if (lane == 0) {
    arguments.i2t[place] = i2t;
    arguments.t2i[place] = t2i;
  }
  const std::uint8_t* const patch_keep = arguments.patch_keep + image * patches.size;
  const std::uint8_t* const token_keep = arguments.token_keep + text * tokens.size;
  for (int patch = lane; patch < patches.size; patch += 32) {
    if (!pairs || patch_keep[patch] == 0) arguments.best_token[place * patches.size + patch] = 0;
  }
  for (int token = lane; token < tokens.size; token += 32) {
    if (!pairs || token_keep[token] == 0) arguments.best_patch[place * tokens.size + token] = 0;
  }
}

template <int kRowWarps, int kColumnTiles>
Status start(ForwardLayout<kRowWarps, kColumnTiles>, ForwardArguments arguments, void* stream) {
  using Layout = ForwardLayout<kRowWarps, kColumnTiles>;
  const std::int64_t text_tiles = (arguments.texts + Layout::kTexts - 1) / Layout::kTexts;
  const std::int64_t image_groups = (arguments.images + kImagesTogether - 1) / kImagesTogether;
  if (image_groups * kImagesTogether > kMostBlocks / text_tiles) {
    return Status::failure("max_similarity: " + std::to_string(arguments.images) + " images with " +
                           std::to_string(arguments.texts) + " texts are too many for one launch");
  }
  arguments.text_tiles = static_cast<int>(text_tiles);
  return launch("max_similarity forward", compare_rows<kRowWarps, kColumnTiles>,
                dim3(static_cast<unsigned>(image_groups * kImagesTogether * text_tiles)), kThreads,
                Layout::bytes(arguments.tokens.size), stream, arguments);
}

/// Calls `use` with the layout for the sizes of a problem.
template <class Use>
auto with_layout(std::int64_t patches, std::int64_t tokens, const Use& use) {
  const bool few = patches <= kWarpRows;
  if (tokens <= 32) return few ? use(ForwardLayout<1, 4>()) : use(ForwardLayout<2, 4>());
  if (tokens <= 64) return few ? use(ForwardLayout<1, 8>()) : use(ForwardLayout<2, 8>());
  if (tokens <= 80 && few) return use(ForwardLayout<1, 10>());
  return use(ForwardLayout<2, 10>());  // never <1, 10>, whose larger staging area would leave too little shared memory for long texts
}

Status start(const MaxSimilarityForward& given, void* stream) {
  const MaxSimilarityProblem& problem = given.problem;
  ForwardArguments arguments = make_arguments(given);
  arguments.slices = arguments.patches.part_width / WidthStage<Bfloat16>::kDepth;
  if (Status status = pack_both(arguments.patches, arguments.tokens, given, stream); !status.ok()) return status;
  const std::int64_t row_slices = arguments.patches.parts * ((arguments.patches.part_width + kTileColumns - 1) / kTileColumns);
  for (const MaxSimilarityConfiguration& each : kMaxSimilarityConfigurations) {
    if (each.tokens == 0 || (problem.configuration != nullptr && std::strcmp(problem.configuration, each.name) != 0)) continue;
    const MaxSimilarityHopperPlan plan = hopper_plan(problem, row_slices, each, current_device());
    if (plan.configuration != nullptr) return TESSERA_DEVICE_NAMESPACE::max_similarity_forward_hopper(given, plan, stream);
  }
  if (problem.configuration != nullptr && std::strcmp(problem.configuration, "mma") != 0) {
    return cannot_process(problem);
  }
  return with_layout(problem.patches, problem.tokens, [&](auto layout) { return start(layout, arguments, stream); });
}

}  // namespace

namespace TESSERA_DEVICE_NAMESPACE {

std::size_t max_similarity_workspace(const MaxSimilarityProblem& problem, Pass pass) {
  PackedRows patches, tokens;
  if (pass == Pass::kForward || takes_hopper_gradients(problem, current_device())) return lay_out(problem, nullptr, patches, tokens);
  return static_cast<std::size_t>(problem.images + problem.texts) * sizeof(float);  // every image's and every text's number of kept rows
}

std::size_t max_similarity_block_memory(const MaxSimilarityProblem& problem) {
  return with_layout(problem.patches, problem.tokens, [&](auto layout) { return layout.bytes(problem.tokens); });
}

Status max_similarity_forward(const MaxSimilarityForward& arguments, void* stream) {
  const MaxSimilarityProblem& problem = arguments.problem;
  if (Status status = check(arguments); !status.ok() || problem.images == 0 || problem.texts == 0) return status;
  if (problem.tokens > MaxSimilarityProblem::kMostTokensOnGpu) {
    return Status::failure("max_similarity: tokens must be at most " +
                           std::to_string(MaxSimilarityProblem::kMostTokensOnGpu) + " on a GPU, but is " +
                           std::to_string(problem.tokens));
  }
  if (arguments.workspace == nullptr) return Status::failure("max_similarity: workspace is a null pointer");
  return start(arguments, stream);
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
