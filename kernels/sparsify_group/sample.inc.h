// The forward and backward passes for one pair, for one instruction set. cpu/matrix.inc.h explains what the including
// source must define.
//
// T are the pair's text tokens, V its patches, S their similarities, A the weights, and C the grouped patches.
// Similarities are computed transposed, as S^T [P, tokens], so that tokens are the vector lanes. The minimum, the
// maximum and the sums over patches are then vertical operations. Computing S^T = V T^T means transposing T, which is
// short, instead of V, which is long. The products that follow read the weights by broadcasts from contiguous memory.
// Only real tokens are processed, so padding costs nothing. The backward pass joins products: [S^T dA^T] = V [T; dC]^T
// and dV = [A^T dS^T] [dC; T].
#include "kernels/cpu/matrix.inc.h"
#include "kernels/sparsify_group/row_rules.h"
#include "kernels/sparsify_group/sample.h"

namespace tessera::kernels {
namespace {

/// Returns the number of tokens per tile. It is chosen so that [P, tokens] fits in 256 KB.
inline std::int64_t token_tile(const SparsifyGroupProblem& problem) {
  const std::int64_t fitting = 65536 / problem.patches / kVector * kVector;
  return smaller(problem.tokens, fitting < 16 ? 16 : fitting > 128 ? 128 : fitting);
}

inline Vector maximum(Vector a, Vector b) {
  return a > b ? a : b;
}
inline Vector minimum(Vector a, Vector b) {
  return a < b ? a : b;
}
inline Vector magnitude(Vector a) {
  return a < 0.0f ? -a : a;
}

/// Returns e^x for x <= 0, within 2 units in the last place, and 0 below -87. Uses Cody-Waite reduction and a Taylor
/// polynomial of degree 7.
inline Vector exponential(Vector x) {
  const IntVector vanishes = x < -87.0f;
  x = select(vanishes, Vector{}, x);
  const Vector rounded = x * 1.44269504f + 12582912.0f;  // adding and then subtracting 12582912 (1.5 * 2^23) rounds to an integer
  const Vector n = rounded - 12582912.0f;
  const Vector r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Vector p = broadcast(1.0f / 5040.0f);
  const float coefficients[] = {1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f, 1.0f, 1.0f};
  for (const float coefficient : coefficients) p = p * r + coefficient;
  const IntVector power = (__builtin_convertvector(n, IntVector) + 127) << 23;
  return select(vanishes, Vector{}, p * (Vector)power);
}

/// Statistics of the similarities of kVector tokens, and values that follow from them. Each lane belongs to one token.
struct LaneRows {
  Vector lowest, highest, sum;
  Vector cut;      ///< a weight is kept if s - lowest >= cut
  IntVector flat;  ///< true for rows with uniform weights, which pass no gradient

  void decide(const SparsifyGroupProblem& problem) {
    flat = IntVector{};
    cut = Vector{};
    if (problem.weights == PatchWeights::kSoftmax) return;
    flat = highest - lowest <= kFlatRow * maximum(magnitude(lowest), magnitude(highest));
    const Vector range = highest - lowest;
    for (int lane = 0; lane < kVector; ++lane) cut[lane] = kept_from(range[lane], problem.threshold);
  }
};

/// Converts kVector columns of S^T into weights, in place.
inline LaneRows weigh(const SparsifyGroupProblem& problem, float* s, std::int64_t stride) {
  const std::int64_t patches = problem.patches;
  LaneRows rows;
  rows.lowest = rows.highest = load(s);
  Vector check{};  // becomes NaN if a similarity is NaN or infinite, and then makes the whole row NaN
  for (std::int64_t p = 0; p < patches; ++p) {
    const Vector value = load(s + p * stride);
    rows.lowest = minimum(value, rows.lowest);
    rows.highest = maximum(value, rows.highest);
    check += value * 0.0f;
  }
  rows.lowest += check;
  rows.highest += check;
  rows.decide(problem);
  rows.sum = Vector{};
  if (problem.weights == PatchWeights::kSoftmax) {
    const float scale = 1.0f / problem.softmax_temperature;
    for (std::int64_t p = 0; p < patches; ++p) {
      const Vector value = exponential((load(s + p * stride) - rows.highest) * scale) + check;
      store(s + p * stride, value);
      rows.sum += value;
    }
  } else {
    for (std::int64_t p = 0; p < patches; ++p) {
      const Vector above = load(s + p * stride) - rows.lowest;
      const Vector kept = select(above < rows.cut, Vector{}, above);
      store(s + p * stride, kept);
      rows.sum += kept;
    }
  }
  const Vector scale = select(rows.flat, Vector{}, 1.0f / rows.sum);
  const Vector offset = select(rows.flat, broadcast(1.0f / static_cast<float>(patches)), Vector{});
  for (std::int64_t p = 0; p < patches; ++p) {
    const Vector kept = load(s + p * stride);
    store(s + p * stride, select(rows.flat, offset, kept * scale));
  }
  return rows;
}

/// The backward pass from the weights to the similarities of kVector tokens. From the tokens' columns of S^T and dA^T,
/// weights() computes the weights `a`, and then similarities() computes the gradient `ds` of the similarities.
struct LaneGradient {
  LaneRows rows;
  Vector scale;      ///< 1 / sum
  Vector mean;       ///< sum_k a_k dA_k
  Vector at_lowest;  ///< the gradient of the minimum, divided by the number of patches that attain it

  void weights(const SparsifyGroupProblem& problem, const float* s, const float* da, std::int64_t stride, float* a,
               std::int64_t a_stride) {
    const std::int64_t patches = problem.patches;
    rows.decide(problem);
    scale = 1.0f / rows.sum;
    mean = Vector{};
    at_lowest = Vector{};
    const Vector uniform = broadcast(1.0f / static_cast<float>(patches));
    if (problem.weights == PatchWeights::kSoftmax) {
      const float inverse_temperature = 1.0f / problem.softmax_temperature;
      for (std::int64_t p = 0; p < patches; ++p) {
        const Vector weight = exponential((load(s + p * stride) - rows.highest) * inverse_temperature) * scale;
        store(a + p * a_stride, weight);
        mean += weight * load(da + p * stride);
      }
      return;
    }
    Vector ties{}, kept_count{}, kept_sum{};
    for (std::int64_t p = 0; p < patches; ++p) {
      const Vector above = load(s + p * stride) - rows.lowest;
      const Vector gradient = load(da + p * stride);
      const IntVector dropped = above < rows.cut;
      const Vector weight = select(rows.flat, uniform, select(dropped, Vector{}, above * scale));
      store(a + p * a_stride, weight);
      mean += weight * gradient;
      ties += select(above <= 0.0f, broadcast(1.0f), Vector{});
      kept_count += select(dropped, Vector{}, broadcast(1.0f));
      kept_sum += select(dropped, Vector{}, gradient);
    }
    const Vector toward_lowest = (mean * kept_count - kept_sum) * scale;
    at_lowest = toward_lowest / maximum(ties, broadcast(1.0f));
  }

  void similarities(const SparsifyGroupProblem& problem, const float* s, const float* da, std::int64_t stride,
                    const float* a, float* ds, std::int64_t a_stride) const {
    const std::int64_t patches = problem.patches;
    if (problem.weights == PatchWeights::kSoftmax) {
      const float inverse_temperature = 1.0f / problem.softmax_temperature;
      for (std::int64_t p = 0; p < patches; ++p) {
        store(ds + p * a_stride, load(a + p * a_stride) * (load(da + p * stride) - mean) * inverse_temperature);
      }
      return;
    }
    for (std::int64_t p = 0; p < patches; ++p) {
      const Vector above = load(s + p * stride) - rows.lowest;
      const Vector kept = select(above < rows.cut, Vector{}, (load(da + p * stride) - mean) * scale);
      const Vector gradient = kept + select(above <= 0.0f, at_lowest, Vector{});
      store(ds + p * a_stride, select(rows.flat, Vector{}, gradient));
    }
  }
};

/// Returns rows as float32. Float32 rows are not copied. Bfloat16 rows are converted into `converted`, but only those
/// that `index` lists (null: all).
inline PickedRows as_float(DataType type, const ConstRows& rows, const std::int32_t* index, std::int64_t count,
                           std::int64_t width, float* converted) {
  if (type == DataType::kFloat32) return {static_cast<const float*>(rows.data), rows.row_stride, index};
  for (std::int64_t r = 0; r < count; ++r) {
    const std::uint16_t* from =
        static_cast<const std::uint16_t*>(rows.data) + (index == nullptr ? r : index[r]) * rows.row_stride;
    for (std::int64_t c = 0; c < width; ++c) converted[r * width + c] = bfloat16_to_float(from[c]);
  }
  return {converted, width, nullptr};
}

std::int64_t scratch_floats(const SparsifyGroupProblem& problem, Pass pass) {
  const std::int64_t tile = token_tile(problem), width = problem.width, patches = problem.patches;
  const bool backward = pass == Pass::kBackward;
  const std::int64_t columns = round_up(backward ? 2 * tile : tile, kVector) + kVector;
  const std::int64_t depth = larger(width, larger(patches, 2 * tile));
  std::int64_t floats = round_up(patches * columns, 16) * (backward ? 2 : 1) + kPanel * depth;
  if (problem.type == DataType::kBfloat16) {
    floats += round_up(patches * width, 16) * (backward ? 2 : 1) + round_up(tile * width, 16) * (backward ? 2 : 1);
  }
  return floats + 16;
}

void forward(const ForwardSample& sample) {
  const SparsifyGroupProblem& problem = *sample.problem;
  const std::int64_t patches = problem.patches, width = problem.width, tile = token_tile(problem);
  const bool converts = problem.type == DataType::kBfloat16;
  const std::int64_t stride = round_up(tile, kVector) + kVector;
  Scratch scratch{sample.scratch};
  float* const s = scratch.take(patches * stride);
  float* const image_copy = scratch.take(converts ? patches * width : 0);
  float* const text_copy = scratch.take(converts ? tile * width : 0);
  float* const panel = scratch.next;
  const PickedRows image = as_float(problem.type, sample.image_tokens, nullptr, patches, width, image_copy);
  for (std::int64_t first = 0; first < sample.real_count; first += tile) {
    const std::int64_t count = smaller(tile, sample.real_count - first);
    const std::int32_t* const index = sample.real_tokens + first;
    const PickedRows text = as_float(problem.type, sample.text_tokens, index, count, width, text_copy);
    multiply_by_transposed(patches, width, image.data, image.stride, &text, 1, count, s, stride, panel);
    for (std::int64_t group = 0; group < count; group += kVector) {
      const LaneRows rows = weigh(problem, s + group, stride);
      const std::int64_t lanes = smaller(kVector, count - group);
      for (std::int64_t lane = 0; lane < lanes && sample.row_statistics != nullptr; ++lane) {
        float* const to = sample.row_statistics + index[group + lane] * kRowStatistics;
        to[0] = rows.lowest[lane];
        to[1] = rows.highest[lane];
        to[2] = rows.sum[lane];
      }
    }
    for (std::int64_t t = 0; t < count && sample.weights != nullptr; ++t) {
      float* const to = sample.weights + index[t] * patches;
      for (std::int64_t p = 0; p < patches; ++p) to[p] = s[p * stride + t];
    }
    multiply<Layout::kColumnsContiguous>(count, width, s, stride, &image, 1, patches,
                                         {sample.grouped.data, sample.grouped.row_stride, index, problem.type}, false,
                                         panel);
  }
}

void backward(const BackwardSample& sample) {
  const SparsifyGroupProblem& problem = *sample.problem;
  const std::int64_t patches = problem.patches, width = problem.width, tile = token_tile(problem);
  const bool converts = problem.type == DataType::kBfloat16;
  const std::int64_t stride = round_up(2 * tile, kVector) + kVector;
  Scratch scratch{sample.scratch};
  float* const s_da = scratch.take(patches * stride);
  float* const a_ds = scratch.take(patches * stride);
  float* const image_copy = scratch.take(converts ? patches * width : 0);
  float* const grad_image_sum = scratch.take(converts ? patches * width : 0);
  float* const text_copy = scratch.take(converts ? tile * width : 0);
  float* const grad_copy = scratch.take(converts ? tile * width : 0);
  float* const panel = scratch.next;
  // If there are several tiles of tokens, a bfloat16 gradient of the patches is summed in float32 and rounded at the
  // end.
  const bool sums_apart = converts && sample.real_count > tile;
  const Destination grad_image = sums_apart ? Destination{grad_image_sum, width, nullptr, DataType::kFloat32}
                                            : Destination{sample.grad_image_tokens.data,
                                                          sample.grad_image_tokens.row_stride, nullptr, problem.type};
  const PickedRows image = as_float(problem.type, sample.image_tokens, nullptr, patches, width, image_copy);
  for (std::int64_t first = 0; first < sample.real_count; first += tile) {
    const std::int64_t count = smaller(tile, sample.real_count - first);
    const std::int32_t* const index = sample.real_tokens + first;
    const PickedRows text = as_float(problem.type, sample.text_tokens, index, count, width, text_copy);
    const PickedRows grad = as_float(problem.type, sample.grad_grouped, index, count, width, grad_copy);
    const PickedRows text_then_grad[] = {text, grad};
    const PickedRows grad_then_text[] = {grad, text};
    multiply_by_transposed(patches, width, image.data, image.stride, text_then_grad, 2, count, s_da, stride, panel);
    LaneGradient gradients[128 / kVector];
    for (std::int64_t group = 0; group < count; group += kVector) {
      LaneGradient& gradient = gradients[group / kVector];
      for (std::int64_t lane = 0; lane < kVector; ++lane) {
        const std::int64_t token = index[smaller(group + lane, count - 1)];
        gradient.rows.lowest[lane] = sample.row_statistics[token * kRowStatistics];
        gradient.rows.highest[lane] = sample.row_statistics[token * kRowStatistics + 1];
        gradient.rows.sum[lane] = sample.row_statistics[token * kRowStatistics + 2];
      }
      gradient.weights(problem, s_da + group, s_da + count + group, stride, a_ds + group, stride);
    }
    // This loop must come after all weights have been stored. The last group of weights may have unused lanes, and
    // storing these lanes later would overwrite the first gradients.
    for (std::int64_t group = 0; group < count; group += kVector) {
      gradients[group / kVector].similarities(problem, s_da + group, s_da + count + group, stride, a_ds + group,
                                              a_ds + count + group, stride);
    }
    if (sample.grad_text_tokens.data != nullptr) {
      multiply<Layout::kColumnsContiguous>(
          count, width, a_ds + count, stride, &image, 1, patches,
          {sample.grad_text_tokens.data, sample.grad_text_tokens.row_stride, index, problem.type}, false, panel);
    }
    if (sample.grad_image_tokens.data != nullptr) {
      multiply<Layout::kRowsContiguous>(patches, width, a_ds, stride, grad_then_text, 2, count, grad_image, first > 0,
                                        panel);
    }
  }
  if (sums_apart && sample.grad_image_tokens.data != nullptr) {
    const Destination rounded{sample.grad_image_tokens.data, sample.grad_image_tokens.row_stride, nullptr,
                              problem.type};
    rounded.put(grad_image_sum, width, 0, patches, 0, width, false);
  }
}

}  // namespace
}  // namespace tessera::kernels
