// The backward pass: sums the rows at the positions of the maxima. The L2 cache limits the speed. For each maximum that
// passes a gradient, one row of the tokens is read (for the gradient of the table), and one row of the table (for the
// gradient of the tokens). Atomics are not needed, because every sum belongs to one warp, or to warps whose sums are added
// in a fixed order. Entries are added in the order of the vocabulary or the batch. So results are the same in every run.
// If all rows can be read and written in words of 16 bytes:
//   table   A warp processes one row of the vocabulary, 512 columns at a time in registers. It loops over the batch.
//   tokens  A block processes one sample and 32 words of each row. It sorts the sample's entries by position in shared memory: each warp
//           counts the positions in its share of the vocabulary, and then writes its entries to the places that follow from all counts, so
//           the entries of a position keep the order of the vocabulary. Then each warp adds the rows of an equal share of the sorted
//           entries, however many of them a position has. A position that several warps share is completed in the order of the warps.
// Otherwise, or if a sample's entries do not fit into shared memory:
//   table   A warp processes one row of the vocabulary, 256 columns at a time in registers. It loops over the batch.
//   tokens  A block processes one sample, with 256 of its positions and 64 columns in shared memory. Each of its 8
//           warps owns every eighth position. A warp reads the sample's weights 32 at a time, and adds those of its own
//           positions.
#include <algorithm>

#include "kernels/device/current_device.h"
#include "kernels/device/words.h"
#include "kernels/token_max_projection/token_max_projection.h"

namespace tessera::kernels {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kTablePieces = 8;  // columns per lane
constexpr int kTokenPieces = 2;
constexpr int kBlockPositions = 256;
constexpr int kBlockColumns = 32 * kTokenPieces;

template <class Element>
struct BackwardArguments {
  int batch, positions, width, vocabulary;
  const Element* tokens;
  const Element* table;
  const std::int64_t* argmax;
  const float* weight;
  Element* grad_tokens;
  Element* grad_table;
};

/// 32 entries, one in each lane of a warp. Only the entries whose bit in `bits` is set are used.
struct Entries {
  float weight;
  int position;
  unsigned bits;
};

/// Calls add(entry, weight, position) for each used entry, in the order of the lanes. Every lane makes all these calls.
template <class Add>
__device__ __forceinline__ void for_each_entry(const Entries& entries, Add add) {
  for_each_lane(entries.bits, [&](int lane) {
    add(lane, __shfl_sync(kAllLanes, entries.weight, lane), __shfl_sync(kAllLanes, entries.position, lane));
  });
}

template <class Element>
__global__ void __launch_bounds__(kThreads) gather_table(BackwardArguments<Element> arguments) {
  const int lane = threadIdx.x % 32, width = arguments.width;
  const std::int64_t v = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (v >= arguments.vocabulary) return;  // the condition is the same for all lanes of a warp
  for (int column0 = lane; column0 - lane < width; column0 += 32 * kTablePieces) {
    float sums[kTablePieces];
#pragma unroll
    for (int i = 0; i < kTablePieces; ++i) sums[i] = 0.0f;
    for (int sample0 = 0; sample0 < arguments.batch; sample0 += 32) {
      const std::int64_t place = (sample0 + lane) * static_cast<std::int64_t>(arguments.vocabulary) + v;
      const bool exists = sample0 + lane < arguments.batch;
      Entries entries;
      entries.weight = exists ? arguments.weight[place] : 0.0f;
      entries.position = exists ? static_cast<int>(arguments.argmax[place]) : -1;
      entries.bits = __ballot_sync(kAllLanes, entries.weight != 0.0f ? 1 : 0);
      for_each_entry(entries, [&](int entry, float weight, int position) {
        const Element* const row =
            arguments.tokens + (static_cast<std::int64_t>(sample0 + entry) * arguments.positions + position) * width;
#pragma unroll
        for (int i = 0; i < kTablePieces; ++i) {
          const int column = column0 + 32 * i;
          if (column < width) sums[i] = fmaf(weight, to_float(row[column]), sums[i]);
        }
      });
    }
#pragma unroll
    for (int i = 0; i < kTablePieces; ++i) {
      const int column = column0 + 32 * i;
      if (column < width) arguments.grad_table[v * width + column] = from_float<Element>(sums[i]);
    }
  }
}

template <class Element>
__global__ void __launch_bounds__(kThreads) gather_tokens(BackwardArguments<Element> arguments) {
  TESSERA_DYNAMIC_SHARED(memory);
  float* const sums = reinterpret_cast<float*>(memory);  // [kBlockPositions, kBlockColumns]
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, width = arguments.width;
  const std::int64_t sample = blockIdx.x;
  const int column0 = static_cast<int>(blockIdx.y) * kBlockColumns + lane;
  const int first = static_cast<int>(blockIdx.z) * kBlockPositions;
  const int left = arguments.positions - first, positions = left < kBlockPositions ? left : kBlockPositions;
  for (int position = warp; position < positions; position += kWarps) {
#pragma unroll
    for (int i = 0; i < kTokenPieces; ++i) sums[position * kBlockColumns + lane + 32 * i] = 0.0f;
  }
  for (int v0 = 0; v0 < arguments.vocabulary; v0 += 32) {
    const std::int64_t place = sample * arguments.vocabulary + v0 + lane;
    Entries entries;
    entries.weight = v0 + lane < arguments.vocabulary ? arguments.weight[place] : 0.0f;
    entries.position = entries.weight != 0.0f ? static_cast<int>(arguments.argmax[place]) - first : -1;
    const bool mine = entries.position >= 0 && entries.position < positions && entries.position % kWarps == warp;
    entries.bits = __ballot_sync(kAllLanes, mine ? 1 : 0);
    for_each_entry(entries, [&](int entry, float weight, int position) {
      const Element* const row = arguments.table + static_cast<std::int64_t>(v0 + entry) * width;
      float* const sum = sums + position * kBlockColumns + lane;
#pragma unroll
      for (int i = 0; i < kTokenPieces; ++i) {
        const int column = column0 + 32 * i;
        if (column < width) sum[32 * i] = fmaf(weight, to_float(row[column]), sum[32 * i]);
      }
    });
  }
  for (int position = warp; position < positions; position += kWarps) {
    Element* const row = arguments.grad_tokens + (sample * arguments.positions + first + position) * width;
#pragma unroll
    for (int i = 0; i < kTokenPieces; ++i) {
      const int column = column0 + 32 * i;
      if (column < width) row[column] = from_float<Element>(sums[position * kBlockColumns + lane + 32 * i]);
    }
  }
}

// ---- Words of 16 bytes ----

constexpr int kTogether = 4;  // rows that a thread loads before it adds the first one

/// A warp's sums of rows: a lane has kPieces words of a row, which are 32 words apart.
template <class Element, int kPieces>
struct RowSums {
  static constexpr int kEach = kWordElements<Element>, kColumns = 32 * kEach * kPieces;
  int first, width;  // the lane's first column
  float values[kPieces * kEach];

  __device__ __forceinline__ RowSums(int column0, int row_width)
      : first(column0 + static_cast<int>(threadIdx.x % 32) * kEach), width(row_width) {
    clear();
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (float& value : values) value = 0.0f;
  }
  /// Calls visit(i, column) for each of the lane's words.
  template <class Visit>
  __device__ __forceinline__ void for_each_word(Visit visit) const {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (first + 32 * kEach * i < width) visit(i, first + 32 * kEach * i);
    }
  }
  /// Adds the first `count` rows of a matrix, times their weights. `count` is the same for all lanes.
  __device__ __forceinline__ void add(const Element* matrix, const std::int64_t (&rows)[kTogether], const float (&weights)[kTogether],
                                      int count) {
    Word words[kTogether][kPieces];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      if (k >= count) break;
      for_each_word([&](int i, int column) { words[k][i] = load_often(matrix + rows[k] * width + column); });
    }
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      if (k >= count) break;
      for_each_word([&](int i, int) {
#pragma unroll
        for (int e = 0; e < kEach; ++e) values[i * kEach + e] = fmaf(weights[k], element<Element>(words[k][i], e), values[i * kEach + e]);
      });
    }
  }
  __device__ __forceinline__ void write(Element* row) const {
    for_each_word([&](int i, int column) {
      Word word{};
#pragma unroll
      for (int e = 0; e < kEach; ++e) set_element(word, e, from_float<Element>(values[i * kEach + e]));
      store_word(row + column, word);
    });
  }
};

template <class Element>
__global__ void __launch_bounds__(kThreads) add_tokens(BackwardArguments<Element> arguments) {
  using Sums = RowSums<Element, 16 / kWordElements<Element>>;
  const int lane = threadIdx.x % 32;
  const std::int64_t v = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (v >= arguments.vocabulary) return;  // the condition is the same for all lanes of a warp
  for (int column0 = 0; column0 < arguments.width; column0 += Sums::kColumns) {
    Sums sums(column0, arguments.width);
    for (int sample0 = 0; sample0 < arguments.batch; sample0 += 32) {
      const std::int64_t place = (sample0 + lane) * static_cast<std::int64_t>(arguments.vocabulary) + v;
      const bool exists = sample0 + lane < arguments.batch;
      const float weight = exists ? arguments.weight[place] : 0.0f;
      const int position = exists ? static_cast<int>(arguments.argmax[place]) : -1;
      unsigned bits = __ballot_sync(kAllLanes, weight != 0.0f ? 1 : 0);
      while (bits != 0) {
        const int count = __popc(bits);
        std::int64_t rows[kTogether];
        float weights[kTogether];
#pragma unroll
        for (int k = 0; k < kTogether; ++k) {
          const int entry = bits != 0 ? __ffs(static_cast<int>(bits)) - 1 : 0;
          rows[k] = static_cast<std::int64_t>(sample0 + entry) * arguments.positions + __shfl_sync(kAllLanes, position, entry);
          weights[k] = __shfl_sync(kAllLanes, weight, entry);
          bits &= bits - 1;
        }
        sums.add(arguments.tokens, rows, weights, count);
      }
    }
    sums.write(arguments.grad_table + v * arguments.width);
  }
}

constexpr int kSortWarps = 32, kSortThreads = 32 * kSortWarps;

/// The shared memory of a block that sorts: the sorted entries, the first place of each position, and then the counts of the warps [warps,
/// positions], whose memory later holds sums of warps.
struct SortMemory {
  std::size_t starts, rest, bytes;

  SortMemory(std::int64_t vocabulary, std::int64_t positions, int columns) {
    const auto rounded = [](std::int64_t size) { return static_cast<std::size_t>((size + 15) / 16 * 16); };
    starts = rounded(vocabulary * 2);
    rest = starts + rounded((positions + 1) * 4);
    bytes = rest + rounded(std::max(kSortWarps * positions * 2, std::int64_t{kSortWarps} * columns * 4));
  }
};

/// A block's entries, sorted by position. An entry is a row of the vocabulary.
struct SortedEntries {
  std::uint16_t* entries;
  int* starts;            // [positions + 1]
  std::uint16_t* counts;  // [warps, positions]
  const std::int64_t* argmax;
  const float* weight;  // both of the block's sample
  int vocabulary, positions;

  /// Calls visit(entry, position, lanes with the same position) for 32 entries of the warp's share at a time. The position is -1 for
  /// entries that are not used.
  template <class Visit>
  __device__ __forceinline__ void for_each_entry(Visit visit) const {
    const int lane = static_cast<int>(threadIdx.x % 32), share = (vocabulary + kSortThreads - 1) / kSortThreads * 32;
    const int first = static_cast<int>(threadIdx.x / 32) * share, end = first + share < vocabulary ? first + share : vocabulary;
    for (int entry0 = first; entry0 < end; entry0 += 32) {
      const int entry = entry0 + lane;
      const bool used = entry < end && weight[entry] != 0.0f;
      const int position = used ? static_cast<int>(argmax[entry]) : -1;
      visit(entry, position, __match_any_sync(kAllLanes, position));
      __syncwarp();
    }
  }
  /// All threads of the block call this.
  __device__ __forceinline__ void sort() const {
    const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
    for (int i = static_cast<int>(threadIdx.x); i < kSortWarps * positions; i += kSortThreads) counts[i] = 0;
    __syncthreads();
    std::uint16_t* const mine = counts + warp * positions;
    const auto add_peers = [&](int position, unsigned peers) {
      if (position < 0 || lane != __ffs(static_cast<int>(peers)) - 1) return;
      mine[position] = static_cast<std::uint16_t>(mine[position] + __popc(peers));
    };
    for_each_entry([&](int, int position, unsigned peers) { add_peers(position, peers); });
    __syncthreads();
    // Replaces the counts by the places relative to the position's first place.
    for (int position = static_cast<int>(threadIdx.x); position < positions; position += kSortThreads) {
      int place = 0;
      for (int i = 0; i < kSortWarps; ++i) {
        std::uint16_t& count = counts[i * positions + position];
        const int of_warp = count;
        count = static_cast<std::uint16_t>(place);
        place += of_warp;
      }
      starts[position + 1] = place;
    }
    __syncthreads();
    if (warp == 0) {
      if (lane == 0) starts[0] = 0;
      int before = 0;
      for (int position0 = 0; position0 < positions; position0 += 32) {
        const bool exists = position0 + lane < positions;
        int sum = exists ? starts[position0 + lane + 1] : 0;
        for (int distance = 1; distance < 32; distance *= 2) {
          const int other = __shfl_sync(kAllLanes, sum, (lane - distance) & 31);
          if (lane >= distance) sum += other;
        }
        if (exists) starts[position0 + lane + 1] = before + sum;
        before += __shfl_sync(kAllLanes, sum, 31);
      }
    }
    __syncthreads();
    for_each_entry([&](int entry, int position, unsigned peers) {
      if (position >= 0) {
        const int place = starts[position] + mine[position] + __popc(peers & ((1u << lane) - 1u));
        entries[place] = static_cast<std::uint16_t>(entry);
      }
      __syncwarp();
      add_peers(position, peers);
    });
    __syncthreads();
  }
  /// Returns the position of the sorted entry at `place`.
  __device__ __forceinline__ int position_at(int place) const {
    int low = 0, high = positions - 1;  // the position is one of these and of those between them
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (starts[middle] <= place) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }
};

template <class Element>
__global__ void __launch_bounds__(kSortThreads, 1) add_table_rows(BackwardArguments<Element> arguments, SortMemory places) {
  using Sums = RowSums<Element, 1>;
  TESSERA_DYNAMIC_SHARED(memory);
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const std::int64_t sample = blockIdx.x;
  const SortedEntries sorted{reinterpret_cast<std::uint16_t*>(memory),
                             reinterpret_cast<int*>(memory + places.starts),
                             reinterpret_cast<std::uint16_t*>(memory + places.rest),
                             arguments.argmax + sample * arguments.vocabulary,
                             arguments.weight + sample * arguments.vocabulary,
                             arguments.vocabulary,
                             arguments.positions};
  sorted.sort();
  const int* const starts = sorted.starts;
  Element* const gradient = arguments.grad_tokens + sample * arguments.positions * arguments.width;
  const auto row = [&](int position) { return gradient + static_cast<std::int64_t>(position) * arguments.width; };
  Sums sums(static_cast<int>(blockIdx.y) * Sums::kColumns, arguments.width);
  for (int position = warp; position < arguments.positions; position += kSortWarps) {
    if (starts[position] == starts[position + 1]) sums.write(row(position));
  }

  float* const of_warps = reinterpret_cast<float*>(memory + places.rest) + lane * Sums::kEach;  // of positions that began in a warp before
  const int total = starts[arguments.positions], share = (total + kSortWarps - 1) / kSortWarps;
  const int begin = warp * share < total ? warp * share : total, end = begin + share < total ? begin + share : total;
  int position = sorted.position_at(begin), continued = -1;  // the position that later warps continue
  for (int from = begin; from < end;) {
    while (starts[position + 1] <= from) ++position;
    const int next = starts[position + 1], to = next < end ? next : end;
    sums.clear();
    for (int first = from; first < to; first += 32) {
      const int count = to - first < 32 ? to - first : 32;
      const int entry = lane < count ? sorted.entries[first + lane] : 0;
      const float weight = lane < count ? sorted.weight[entry] : 0.0f;
      for (int k0 = 0; k0 < count; k0 += kTogether) {
        std::int64_t rows[kTogether];
        float weights[kTogether];
#pragma unroll
        for (int k = 0; k < kTogether; ++k) {
          rows[k] = __shfl_sync(kAllLanes, entry, k0 + k);
          weights[k] = __shfl_sync(kAllLanes, weight, k0 + k);
        }
        sums.add(arguments.table, rows, weights, count - k0);
      }
    }
    if (starts[position] < from) {
#pragma unroll
      for (int e = 0; e < Sums::kEach; ++e) of_warps[warp * Sums::kColumns + e] = sums.values[e];
    } else if (next > end) {
      continued = position;
    } else {
      sums.write(row(position));
    }
    from = to;
  }
  __syncthreads();
  if (continued < 0) return;
  for (int other = warp + 1; other < kSortWarps && other * share < starts[continued + 1]; ++other) {
#pragma unroll
    for (int e = 0; e < Sums::kEach; ++e) sums.values[e] += of_warps[other * Sums::kColumns + e];
  }
  sums.write(row(continued));
}

std::int64_t pieces(std::int64_t whole, std::int64_t piece) {
  return (whole + piece - 1) / piece;
}

template <class Element>
Status start(const TokenMaxProjectionBackward& given, void* stream) {
  const TokenMaxProjectionProblem& problem = given.problem;
  BackwardArguments<Element> arguments;
  arguments.batch = static_cast<int>(problem.batch);
  arguments.positions = static_cast<int>(problem.positions);
  arguments.width = static_cast<int>(problem.width);
  arguments.vocabulary = static_cast<int>(problem.vocabulary);
  arguments.tokens = static_cast<const Element*>(given.tokens);
  arguments.table = static_cast<const Element*>(given.table);
  arguments.argmax = given.argmax;
  arguments.weight = given.weight;
  arguments.grad_tokens = static_cast<Element*>(given.grad_tokens);
  arguments.grad_table = static_cast<Element*>(given.grad_table);
  const auto is_aligned = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; };
  const bool in_words = problem.width % kWordElements<Element> == 0 && is_aligned(given.tokens) && is_aligned(given.table) &&
                        is_aligned(given.grad_tokens) && is_aligned(given.grad_table);
  if (given.grad_table != nullptr) {
    const dim3 grid(static_cast<unsigned>(pieces(problem.vocabulary, kWarps)));
    Status status = launch("token_max_projection backward", in_words ? add_tokens<Element> : gather_table<Element>, grid, kThreads, 0,
                           stream, arguments);
    if (!status.ok()) return status;
  }
  if (given.grad_tokens == nullptr || problem.batch == 0) return {};
  if (problem.batch > kMostBlocks)
    return Status::failure("token_max_projection: the batch is too large for one launch");
  constexpr int kColumns = RowSums<Element, 1>::kColumns;
  constexpr std::int64_t kMostSorted = 65535;  // the greatest number of 16 bits
  const std::int64_t chunks = pieces(problem.width, kColumns);
  const SortMemory memory(problem.vocabulary, problem.positions, kColumns);
  if (in_words && problem.vocabulary <= kMostSorted && chunks <= kMostSorted && memory.bytes <= current_device().block_memory) {
    return launch("token_max_projection backward", add_table_rows<Element>,
                  dim3(static_cast<unsigned>(problem.batch), static_cast<unsigned>(chunks)), kSortThreads, memory.bytes, stream, arguments,
                  memory);
  }
  const dim3 grid(static_cast<unsigned>(problem.batch), static_cast<unsigned>(pieces(problem.width, kBlockColumns)),
                  static_cast<unsigned>(pieces(problem.positions, kBlockPositions)));
  const std::int64_t rows = std::min<std::int64_t>(kBlockPositions, problem.positions);
  return launch("token_max_projection backward", gather_tokens<Element>, grid, kThreads,
                static_cast<std::size_t>(rows) * kBlockColumns * sizeof(float), stream, arguments);
}

}  // namespace

namespace TESSERA_DEVICE_NAMESPACE {

Status token_max_projection_backward(const TokenMaxProjectionBackward& arguments, void* stream) {
  if (Status status = check(arguments); !status.ok()) return status;
  return arguments.problem.type == DataType::kBfloat16 ? start<Bfloat16>(arguments, stream)
                                                       : start<float>(arguments, stream);
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
