// The attention of one sequence and head, for one instruction set. cpu/matrix.inc.h explains what the including source must define.
#include "kernels/attention/attend_rows.h"
#include "kernels/cpu/exponential.inc.h"

namespace tessera::kernels {
namespace {

inline std::int64_t score_stride(std::int64_t tokens) {
  return round_up(tokens, kVector);
}

std::int64_t scratch_floats(std::int64_t tokens, std::int64_t width) {
  return round_up(tokens * score_stride(tokens), 16) + kPanel * larger(tokens, width);
}

/// Replaces the first `count` scores by exp(scale * (score - maximum)), and the rest of the row by 0. Returns the sum.
float to_weights(float* scores, std::int64_t count, std::int64_t stride, float scale) {
  for (std::int64_t c = count; c < stride; ++c) scores[c] = -__builtin_huge_valf();
  Vector best = load(scores);
  for (std::int64_t c = kVector; c < stride; c += kVector) {
    const Vector next = load(scores + c);
    best = select(next > best, next, best);
  }
  float top = best[0];
  for (int lane = 1; lane < kVector; ++lane) top = best[lane] > top ? best[lane] : top;
  Vector sums{};
  for (std::int64_t c = 0; c < stride; c += kVector) {
    const Vector power = exponential((load(scores + c) - top) * scale);
    store(scores + c, power);
    sums += power;
  }
  float sum = 0.0f;
  for (int lane = 0; lane < kVector; ++lane) sum += sums[lane];
  return sum;
}

void attend(const HeadRows& rows, float* scratch) {
  const std::int64_t stride = score_stride(rows.tokens);
  float* const scores = scratch;
  float* const panel = scratch + round_up(rows.tokens * stride, 16);
  const PickedRows keys = {rows.key, rows.stride, nullptr}, values = {rows.value, rows.stride, nullptr};
  multiply_by_transposed(rows.tokens, rows.width, rows.query, rows.stride, &keys, 1, rows.tokens, scores, stride, panel);
  for (std::int64_t i = 0; i < rows.tokens; ++i) {
    float* const row = scores + i * stride;
    const float share = 1.0f / to_weights(row, rows.causal ? i + 1 : rows.tokens, stride, rows.scale);
    for (std::int64_t c = 0; c < stride; c += kVector) store(row + c, load(row + c) * share);
  }
  multiply<Layout::kRowsContiguous>(rows.tokens, rows.width, scores, stride, &values, 1, rows.tokens,
                                    {rows.output, rows.output_stride, nullptr, DataType::kFloat32}, false, panel);
}

constexpr HeadKernels kHeadKernels = {scratch_floats, attend};

}  // namespace
}  // namespace tessera::kernels
