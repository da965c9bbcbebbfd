// The forward and backward passes for one image and one text, for one instruction set. cpu/matrix.inc.h explains what
// the including source must define.
//
// Products are computed transposed, as S^T [tokens, patches]. The image's patches are packed once for all texts, and
// the text's tokens are read in place. The maximum over tokens is then a vertical operation on vectors of patches. The
// maximum over patches is one horizontal operation per token.
#include "kernels/cpu/matrix.inc.h"
#include "kernels/max_similarity/pair.h"

namespace tessera::kernels {
namespace {

using Place = MaxSimilarityProblem::Place;

constexpr float kLowest = -3.4028235e38f;

inline IntVector select(IntVector condition, IntVector yes, IntVector no) {
  return condition ? yes : no;
}
inline IntVector lanes() {
  IntVector lane;
  for (int i = 0; i < kVector; ++i) lane[i] = i;
  return lane;
}
inline float sum_of(Vector v) {
  float sum = 0.0f;
  for (int i = 0; i < kVector; ++i) sum += v[i];
  return sum;
}

/// Returns the distance between rows of S^T, in floats. The distance includes one extra vector: without it, with 1,024
/// patches, all entries of a column would fall into the same cache set.
inline std::int64_t row_stride(std::int64_t patches) {
  return round_up(patches, kVector) + kVector;
}

std::int64_t panel_floats(const MaxSimilarityProblem& problem) {
  return round_up(problem.patches, kVector) * problem.width;
}

std::int64_t pair_floats(const MaxSimilarityProblem& problem) {
  return round_up(problem.tokens * row_stride(problem.patches), 16) + round_up(problem.tokens * problem.width, 16);
}

void pack(const PackedImage& image) {
  pack_panels({image.patches, image.width, image.kept}, image.kept_count, image.width, image.panels);
}

/// Returns the kept rows as adjacent rows. If they are already adjacent, returns the rows themselves; otherwise copies
/// them to `copy` and returns it.
inline const float* compact(const float* rows, std::int64_t width, const std::int32_t* kept, std::int64_t count,
                            float* copy) {
  if (kept[count - 1] - kept[0] == count - 1) return rows + kept[0] * width;
  for (std::int64_t r = 0; r < count; ++r) {
    const float* from = rows + kept[r] * width;
    for (std::int64_t d = 0; d < width; ++d) copy[r * width + d] = from[d];
  }
  return copy;
}

/// Finds each patch's best token, which is the one with the largest product, and computes the mean of these products.
inline void choose_tokens(const PairForward& pair, const float* s, std::int64_t stride) {
  const std::int64_t patches = pair.image->kept_count;
  Vector sum{}, check{};  // `check` becomes NaN if any product is NaN or infinite
  for (std::int64_t group = 0; group < patches; group += kVector) {
    Vector best = load(s + group);
    check += best * 0.0f;
    IntVector index{}, row{};
    for (std::int64_t r = 1; r < pair.kept_count; ++r) {
      row += 1;
      const Vector value = load(s + r * stride + group);
      const IntVector better = value > best;
      best = select(better, value, best);
      index = select(better, row, index);
      check += value * 0.0f;
    }
    const std::int64_t count = smaller(kVector, patches - group);
    sum += select(lanes() < static_cast<std::int32_t>(count), best, Vector{});
    for (std::int64_t lane = 0; lane < count; ++lane) {
      pair.best_token[pair.image->kept[group + lane]] = static_cast<Place>(pair.kept[index[lane]]);
    }
  }
  *pair.i2t = sum_of(sum) / static_cast<float>(patches) + sum_of(check);
}

/// Finds each token's best patch, which is the one with the largest product, and computes the mean of these products.
inline void choose_patches(const PairForward& pair, const float* s, std::int64_t stride) {
  const std::int64_t patches = pair.image->kept_count;
  const std::int64_t whole = patches / kVector * kVector;
  const IntVector rest = lanes() < static_cast<std::int32_t>(patches - whole);
  float sum = 0.0f;
  for (std::int64_t r = 0; r < pair.kept_count; ++r, s += stride) {
    Vector best = broadcast(kLowest);
    IntVector index = lanes(), column = lanes();
    for (std::int64_t p = 0; p < whole; p += kVector) {
      const Vector value = load(s + p);
      const IntVector better = value > best;
      best = select(better, value, best);
      index = select(better, column, index);
      column += kVector;
    }
    if (whole < patches) {
      const Vector value = select(rest, load(s + whole), broadcast(kLowest));
      const IntVector better = value > best;
      best = select(better, value, best);
      index = select(better, column, index);
    }
    float highest = best[0];
    std::int32_t place = index[0];
    for (int lane = 1; lane < kVector; ++lane) {
      const bool better = best[lane] > highest || (best[lane] == highest && index[lane] < place);
      highest = better ? best[lane] : highest;
      place = better ? index[lane] : place;
    }
    sum += highest;
    pair.best_patch[pair.kept[r]] = static_cast<Place>(pair.image->kept[place]);
  }
  *pair.t2i = sum / static_cast<float>(pair.kept_count);
}

void forward(const PairForward& pair) {
  const PackedImage& image = *pair.image;
  const std::int64_t stride = row_stride(image.kept_count);
  Scratch scratch{pair.scratch};
  float* const s = scratch.take(pair.kept_count * stride);
  const float* const tokens = compact(pair.tokens, image.width, pair.kept, pair.kept_count, scratch.next);
  multiply_panels(pair.kept_count, image.width, tokens, image.width, image.panels, image.kept_count, s, stride);
  choose_tokens(pair, s, stride);
  choose_patches(pair, s, stride);
  *pair.t2i += *pair.i2t - *pair.i2t;  // adds 0, or NaN if i2t is NaN
}

void backward(const PairGradient& pair) {
  const std::int64_t width = pair.width;
  for (std::int64_t i = 0; i < pair.own_count && pair.own_weight != 0.0f; ++i) {
    const std::int64_t row = pair.own_kept[i];
    add_scaled(pair.gradient + row * width, pair.others + pair.best_other[row] * width, pair.own_weight, width);
  }
  for (std::int64_t i = 0; i < pair.other_count && pair.other_weight != 0.0f; ++i) {
    const std::int64_t row = pair.other_kept[i];
    add_scaled(pair.gradient + pair.best_own[row] * width, pair.others + row * width, pair.other_weight, width);
  }
}

}  // namespace
}  // namespace tessera::kernels
