// Forward: Each thread multiplies a group of samples by a chunk of the vocabulary, tile by tile. The rows, the table and
// the products of a tile fit in a core's L2 cache, so that finding the maxima costs little compared with the matrix
// product, which the caller's library computes. Rows of padding are not multiplied.
// Backward: First the threads compute the gradient of the tokens, one sample at a time. Then they compute the gradient of
// the table, one piece of the vocabulary at a time. So no two threads add to one row.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/cpu/instruction_set.h"
#include "kernels/token_max_projection/rows.h"
#include "kernels/token_max_projection/token_max_projection.h"

namespace tessera::kernels::cpu {
namespace {

/// Samples are grouped up to this number of rows. A larger sample is its own group. Matrix products reach full speed at about 300 rows.
constexpr std::int64_t kGroupRows = 448;
constexpr std::int64_t kTileColumns = 512;
constexpr std::int64_t kChunkColumns = 2 * kTileColumns;
constexpr std::int64_t kTableRows = 64;  // rows of the table's gradient per work item
/// Floats per cache line. Buffers start at a cache line, so that matrix products always add in the same order.
constexpr std::int64_t kAlignedFloats = 16;

const RowKernels& row_kernels() {
#if defined(TESSERA_X86_KERNELS)
  if (instruction_set() == InstructionSet::kAvx512) return kAvx512RowKernels;
  if (instruction_set() == InstructionSet::kAvx2) return kAvx2RowKernels;
#endif
  return kPortableRowKernels;
}

std::int64_t rounded_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

template <class T>
T* aligned(T* pointer) {
  return reinterpret_cast<T*>(rounded_up(reinterpret_cast<std::intptr_t>(pointer), kAlignedFloats * sizeof(float)));
}

/// Consecutive samples whose real rows are multiplied in one product.
struct Group {
  std::int64_t first = 0, end = 0;  // range of samples
  std::int64_t rows = 0;            // number of real rows
  bool gaps = false;                // true if the real rows are not adjacent
};

/// The real positions of each sample, and the groups into which samples are divided.
class Rows {
 public:
  Rows(const TokenMaxProjectionProblem& problem, const std::uint8_t* mask)
      : positions_(problem.positions), counts_(problem.batch) {
    if (mask == nullptr) {
      std::fill(counts_.begin(), counts_.end(), positions_);
    } else {
      real_.resize(problem.batch * positions_);
      for (std::int64_t sample = 0; sample < problem.batch; ++sample) {
        for (std::int64_t n = 0; n < positions_; ++n) {
          if (mask[sample * positions_ + n] != 0) {
            real_[sample * positions_ + counts_[sample]++] = static_cast<std::int32_t>(n);
          }
        }
      }
    }
    for (std::int64_t sample = 0; sample < problem.batch; ++sample) {
      const std::int64_t count = counts_[sample];
      if (groups_.empty() || groups_.back().rows + count > kGroupRows) groups_.push_back({sample, sample, 0, false});
      Group& group = groups_.back();
      group.end = sample + 1;
      group.rows += count;
      group.gaps = group.gaps || count < positions_;
    }
  }
  const std::vector<Group>& groups() const { return groups_; }
  std::int64_t count(std::int64_t sample) const { return counts_[sample]; }
  std::int64_t position(std::int64_t sample, std::int64_t row) const {
    return real_.empty() ? row : real_[sample * positions_ + row];
  }
  std::int64_t most_in_group() const {
    std::int64_t most = 0;
    for (const Group& group : groups_) most = std::max(most, group.rows);
    return most;
  }

 private:
  std::int64_t positions_;
  std::vector<std::int64_t> counts_;
  std::vector<std::int32_t> real_;  // [B, N]: row b begins with the counts_[b] real positions of sample b; empty if all positions are real
  std::vector<Group> groups_;
};

/// Returns the real rows of a group as adjacent rows. If they are already adjacent, returns the rows themselves;
/// otherwise copies them to `copy` and returns it.
const float* together(const Rows& rows, const Group& group, const float* tokens, std::int64_t positions,
                      std::int64_t width, float* copy) {
  if (!group.gaps) return tokens + group.first * positions * width;
  float* to = copy;
  for (std::int64_t sample = group.first; sample < group.end; ++sample) {
    for (std::int64_t r = 0; r < rows.count(sample); ++r, to += width) {
      const float* const from = tokens + (sample * positions + rows.position(sample, r)) * width;
      std::copy(from, from + width, to);
    }
  }
  return copy;
}

struct Maxima {
  float value[kTileColumns];
  std::int32_t row[kTileColumns];
};

/// Computes a sample's results for the table rows [first, first + columns). `products` [real positions, columns] holds the
/// products of the sample's real positions with these table rows.
void finish(const TokenMaxProjectionForward& arguments, const Rows& rows, std::int64_t sample, std::int64_t first,
            std::int64_t columns, const float* products) {
  float* const encoding = arguments.encoding + sample * arguments.problem.vocabulary + first;
  std::int64_t* const argmax = arguments.argmax + sample * arguments.problem.vocabulary + first;
  if (rows.count(sample) == 0) {
    std::fill(encoding, encoding + columns, 0.0f);
    std::fill(argmax, argmax + columns, -1);
    return;
  }
  Maxima best;
  row_kernels().maxima(products, rows.count(sample), columns, best.value, best.row);
  for (std::int64_t c = 0; c < columns; ++c) {
    const float maximum = best.value[c] + arguments.bias[first + c];
    encoding[c] = maximum <= 0.0f ? 0.0f : std::log1p(maximum);  // NaN stays NaN
    argmax[c] = rows.position(sample, best.row[c]);
  }
}

/// The nonzero entries of a row or column of the weights.
struct Entries {
  std::vector<std::int32_t> index;
  std::vector<float> weight;
};

/// Computes the gradient of one sample's tokens. Sorts the sample's entries by position, and then sums the entries of
/// each position.
void add_tokens(const TokenMaxProjectionBackward& arguments, std::int64_t sample, Entries& sorted,
                std::vector<std::int64_t>& end) {
  const TokenMaxProjectionProblem& problem = arguments.problem;
  const std::int64_t* const argmax = arguments.argmax + sample * problem.vocabulary;
  const float* const weight = arguments.weight + sample * problem.vocabulary;
  sorted.index.resize(problem.vocabulary);
  sorted.weight.resize(problem.vocabulary);
  // While entries are being sorted, end[n] is the next free place for an entry of position n. Afterwards it is the end of the
  // entries of position n.
  end.assign(problem.positions + 1, 0);
  for (std::int64_t v = 0; v < problem.vocabulary; ++v) {
    if (weight[v] != 0.0f) ++end[argmax[v] + 1];
  }
  for (std::int64_t n = 0; n < problem.positions; ++n) end[n + 1] += end[n];
  for (std::int64_t v = 0; v < problem.vocabulary; ++v) {
    if (weight[v] == 0.0f) continue;
    const std::int64_t place = end[argmax[v]]++;
    sorted.index[place] = static_cast<std::int32_t>(v);
    sorted.weight[place] = weight[v];
  }
  std::int64_t begin = 0;
  for (std::int64_t n = 0; n < problem.positions; ++n) {
    row_kernels().weighted_sum(
        static_cast<const float*>(arguments.table), problem.width, sorted.index.data() + begin,
        sorted.weight.data() + begin, end[n] - begin,
        static_cast<float*>(arguments.grad_tokens) + (sample * problem.positions + n) * problem.width);
    begin = end[n];
  }
}

/// Computes the gradient of one row of the table. Adds the samples' contributions in the order of the samples.
void add_table_row(const TokenMaxProjectionBackward& arguments, std::int64_t v, Entries& entries) {
  const TokenMaxProjectionProblem& problem = arguments.problem;
  entries.index.clear();
  entries.weight.clear();
  for (std::int64_t sample = 0; sample < problem.batch; ++sample) {
    const std::int64_t place = sample * problem.vocabulary + v;
    if (arguments.weight[place] == 0.0f) continue;
    entries.index.push_back(static_cast<std::int32_t>(sample * problem.positions + arguments.argmax[place]));
    entries.weight.push_back(arguments.weight[place]);
  }
  row_kernels().weighted_sum(static_cast<const float*>(arguments.tokens), problem.width, entries.index.data(),
                             entries.weight.data(), static_cast<std::int64_t>(entries.index.size()),
                             static_cast<float*>(arguments.grad_table) + v * problem.width);
}

Status check_type(const TokenMaxProjectionProblem& problem) {
  if (problem.type == DataType::kFloat32) return {};
  return Status::failure("token_max_projection: the CPU has only a float32 kernel");
}

}  // namespace

Status token_max_projection_forward(const TokenMaxProjectionForward& arguments, const MatrixProduct& product,
                                    const Parallel& parallel) {
  const TokenMaxProjectionProblem& problem = arguments.problem;
  if (Status status = check(arguments); !status.ok() || problem.batch == 0) return status;
  if (Status status = check_type(problem); !status.ok()) return status;
  const Rows rows(problem, arguments.mask);
  const std::int64_t groups = static_cast<std::int64_t>(rows.groups().size());
  // Uses at least two chunks, because with only one work item the caller's matrix product would start its own threads.
  const std::int64_t chunk = std::min(kChunkColumns, (problem.vocabulary + 1) / 2);
  const std::int64_t items = groups * ((problem.vocabulary + chunk - 1) / chunk);
  const std::int64_t copy_floats = rounded_up(rows.most_in_group() * problem.width, kAlignedFloats);
  const std::int64_t thread_floats =
      copy_floats + rounded_up(rows.most_in_group() * kTileColumns, kAlignedFloats) + kAlignedFloats;
  std::vector<std::vector<float>> scratch(thread_count(parallel, items));
  for_each_item(parallel, items, [&](int thread, std::int64_t item) {
    const Group& group = rows.groups()[item % groups];
    scratch[thread].resize(thread_floats);
    float* const copy = aligned(scratch[thread].data());
    float* const products = copy + copy_floats;
    const float* const real =
        together(rows, group, static_cast<const float*>(arguments.tokens), problem.positions, problem.width, copy);
    const std::int64_t chunk_end = std::min(problem.vocabulary, (item / groups + 1) * chunk);
    for (std::int64_t first = item / groups * chunk; first < chunk_end; first += kTileColumns) {
      const std::int64_t columns = std::min(kTileColumns, chunk_end - first);
      if (group.rows > 0) {
        product(group.rows, columns, problem.width, real,
                static_cast<const float*>(arguments.table) + first * problem.width, products);
      }
      const float* of_sample = products;
      for (std::int64_t sample = group.first; sample < group.end; ++sample) {
        finish(arguments, rows, sample, first, columns, of_sample);
        of_sample += rows.count(sample) * columns;
      }
    }
  });
  return {};
}

Status token_max_projection_backward(const TokenMaxProjectionBackward& arguments, const Parallel& parallel) {
  const TokenMaxProjectionProblem& problem = arguments.problem;
  if (Status status = check(arguments); !status.ok()) return status;
  if (Status status = check_type(problem); !status.ok()) return status;
  if (arguments.grad_tokens != nullptr) {
    std::vector<Entries> sorted(thread_count(parallel, problem.batch));
    std::vector<std::vector<std::int64_t>> ends(sorted.size());
    for_each_item(parallel, problem.batch, [&](int thread, std::int64_t sample) {
      add_tokens(arguments, sample, sorted[thread], ends[thread]);
    });
  }
  if (arguments.grad_table != nullptr) {
    const std::int64_t items = (problem.vocabulary + kTableRows - 1) / kTableRows;
    std::vector<Entries> entries(thread_count(parallel, items));
    for_each_item(parallel, items, [&](int thread, std::int64_t item) {
      const std::int64_t end = std::min(problem.vocabulary, (item + 1) * kTableRows);
      for (std::int64_t v = item * kTableRows; v < end; ++v) add_table_row(arguments, v, entries[thread]);
    });
  }
  return {};
}

}  // namespace tessera::kernels::cpu
