#pragma once

// The kept rows of each image or text, adjacent and in bfloat16, in the form that the kernels multiply. A
// float32 row becomes two parts: its value rounded to bfloat16, and the remainder, rounded as well. Together both parts
// have a precision of 16 bits.
#include "kernels/device/hopper_layout.h"
#include "kernels/device/staging.h"
#include "kernels/max_similarity/max_similarity.h"

namespace tessera::kernels {
namespace {

using Place = MaxSimilarityProblem::Place;

/// The packed rows of one side, which is all images or all texts. A row has parts x part_width elements, with zeros
/// past the real width. Rows past a group's count are zeros up to the next multiple of kPackedRows, and not written after it.
constexpr int kPackedRows = 32;
struct PackedRows {
  Bfloat16* rows;        ///< [groups, size, parts, part_width]
  std::int32_t* counts;  ///< [groups], number of kept rows
  Place* kept;           ///< [groups, size], indices of the kept rows
  int size, parts, part_width;

  __device__ __forceinline__ int row_elements() const { return parts * part_width; }
  __device__ __forceinline__ const Bfloat16* row(std::int64_t group, int index) const {
    return rows + (group * size + index) * row_elements();
  }
};

inline std::size_t rounded_up(std::size_t bytes) {
  return (bytes + 15) / 16 * 16;
}

/// Places the arrays of one side (images or texts) in the workspace at `offset`, and advances the offset past them.
inline PackedRows packed_rows(void* workspace, std::size_t& offset, std::int64_t groups, std::int64_t size,
                              const MaxSimilarityProblem& problem) {
  constexpr int kDepth = WidthStage<Bfloat16>::kDepth;
  PackedRows side;
  side.size = static_cast<int>(size);
  side.parts = problem.type == DataType::kFloat32 ? 2 : 1;
  side.part_width = static_cast<int>((problem.width + kDepth - 1) / kDepth * kDepth);
  const auto take = [&](std::int64_t bytes) {
    unsigned char* const at = static_cast<unsigned char*>(workspace) + offset;
    offset += rounded_up(static_cast<std::size_t>(bytes));
    return at;
  };
  const std::int64_t row_bytes = static_cast<std::int64_t>(sizeof(Bfloat16)) * side.parts * side.part_width;
  side.rows = reinterpret_cast<Bfloat16*>(take(groups * size * row_bytes));
  side.counts = reinterpret_cast<std::int32_t*>(take(groups * static_cast<std::int64_t>(sizeof(std::int32_t))));
  side.kept = reinterpret_cast<Place*>(take(groups * size * static_cast<std::int64_t>(sizeof(Place))));
  return side;
}

/// Places the packed rows of the images and of the texts in the workspace. Returns the size of the workspace.
inline std::size_t lay_out(const MaxSimilarityProblem& problem, void* workspace, PackedRows& patches, PackedRows& tokens) {
  std::size_t bytes = 0;
  patches = packed_rows(workspace, bytes, problem.images, problem.patches, problem);
  tokens = packed_rows(workspace, bytes, problem.texts, problem.tokens, problem);
  return bytes;
}

/// The packed rows for the copy unit of Hopper GPUs, with the parts of a row as heads.
inline TileSource packed_source(const PackedRows& rows, std::int64_t groups) {
  const std::int64_t row = static_cast<std::int64_t>(rows.parts) * rows.part_width;
  return {rows.rows, rows.part_width, rows.size, rows.parts, groups, row, rows.part_width, rows.size * row};
}

constexpr int kPackWarps = 8;

/// Packs the rows. There is one block for each group, and each of its warps copies every eighth kept row.
template <class Element>
__global__ void __launch_bounds__(32 * kPackWarps)
    pack_rows(PackedRows to, const Element* rows, const std::uint8_t* keep, int width) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * to.size;
  int count = 0;
  for (int row0 = 0; row0 < to.size; row0 += 32) {
    const bool keeps = row0 + lane < to.size && keep[first + row0 + lane] != 0;
    for_each_lane(__ballot_sync(kAllLanes, keeps ? 1 : 0), [&](int kept_lane) {
      const int place = count++;
      if (place % kPackWarps != warp) return;
      const Element* const from = rows + (first + row0 + kept_lane) * width;
      Bfloat16* const packed = to.rows + (first + place) * to.row_elements();
      for (int column = lane; column < to.part_width; column += 32) {
        const float value = column < width ? to_float(from[column]) : 0.0f;
        const Bfloat16 upper = from_float<Bfloat16>(value);
        packed[column] = upper;
        if (to.parts > 1) packed[to.part_width + column] = from_float<Bfloat16>(value - to_float(upper));
      }
      if (lane == 0) to.kept[first + place] = static_cast<Place>(row0 + kept_lane);
    });
  }
  for (int row = count + warp; row < to.size && row < (count + kPackedRows - 1) / kPackedRows * kPackedRows; row += kPackWarps) {
    for (int column = lane; column < to.row_elements(); column += 32) to.rows[(first + row) * to.row_elements() + column] = {};
  }
  if (threadIdx.x == 0) to.counts[blockIdx.x] = count;
}

template <class Element>
Status pack(const PackedRows& to, std::int64_t groups, const void* rows, const std::uint8_t* keep, std::int64_t width, void* stream) {
  if (groups > kMostBlocks) return Status::failure("max_similarity: the batch is too large for one launch");
  return launch("max_similarity packing", pack_rows<Element>, dim3(static_cast<unsigned>(groups)), 32 * kPackWarps, 0, stream, to,
                static_cast<const Element*>(rows), keep, static_cast<int>(width));
}

/// Packs the rows of both sides, for the arguments of either pass.
template <class Arguments>
Status pack_both(const PackedRows& patches, const PackedRows& tokens, const Arguments& given, void* stream) {
  const MaxSimilarityProblem& problem = given.problem;
  const auto side = problem.type == DataType::kBfloat16 ? pack<Bfloat16> : pack<float>;
  Status status = side(patches, problem.images, given.patches, given.patch_keep, problem.width, stream);
  return status.ok() ? side(tokens, problem.texts, given.tokens, given.token_keep, problem.width, stream) : status;
}

}  // namespace
}  // namespace tessera::kernels
