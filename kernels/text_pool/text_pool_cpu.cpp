// A thread processes one row after another. Rows are short and stay in the L1 cache.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/instruction_set.h"
#include "kernels/text_pool/pool_rows.h"
#include "kernels/text_pool/text_pool.h"

namespace tessera::kernels::cpu {
namespace {

constexpr float kShort = 1e-12f;  // a vector is divided by the larger of its norm and this number
constexpr std::int64_t kRowsAtATime = 16;

const PoolRows& pool_rows() {
#if defined(TESSERA_X86_KERNELS)
  if (instruction_set() == InstructionSet::kAvx512) return kAvx512PoolRows;
  if (instruction_set() == InstructionSet::kAvx2) return kAvx2PoolRows;
#endif
  return kPortablePoolRows;
}

template <class Body>
void for_each_row(const Parallel& parallel, std::int64_t rows, Body body) {
  for_each_item(parallel, (rows + kRowsAtATime - 1) / kRowsAtATime, [&](int, std::int64_t item) {
    for (std::int64_t row = item * kRowsAtATime; row < std::min(rows, (item + 1) * kRowsAtATime); ++row) body(row);
  });
}

void finish_pair(const PooledPairs& a, const PoolRows& loops, std::int64_t row) {
  float* const pooled = a.pooled + row * a.width;
  float* const text = a.text + row * a.width;
  float with_text = 0.0f, with_itself = 0.0f;
  loops.products(pooled, text, a.width, &with_text, &with_itself);
  const float length = std::sqrt(with_itself), share = 1.0f / std::max(length, kShort);
  const float cosine = with_text * share, label = a.labels[row];
  const float against = -label * (*a.scale * cosine + *a.bias);  // -label * z
  a.losses[row] = label == 0.0f ? 0.0f : std::max(against, 0.0f) + std::log1p(std::exp(-std::abs(against)));
  const float of_logit = label == 0.0f ? 0.0f : -label / (1.0f + std::exp(-against));
  if (a.of_scale != nullptr) a.of_scale[row] = of_logit * cosine;
  if (a.of_bias != nullptr) a.of_bias[row] = of_logit;
  if (!a.gradient) return;
  const float of_cosine = of_logit * *a.scale;
  loops.combine(pooled, text, a.width, length > kShort ? -of_cosine * cosine * share * share : 0.0f, of_cosine * share,
                of_cosine * share);
}

}  // namespace

Status patch_softmax(const PatchSoftmax& a, const Parallel& parallel) {
  if (Status status = check(a); !status.ok() || a.rows == 0) return status;
  const PoolRows& loops = pool_rows();
  for_each_row(parallel, a.rows,
               [&](std::int64_t row) { loops.softmax(a.scores + row * a.patches, a.patches, a.zero_token); });
  return {};
}

Status patch_softmax_backward(const PatchSoftmaxBackward& a, const Parallel& parallel) {
  if (Status status = check(a); !status.ok() || a.rows == 0) return status;
  const PoolRows& loops = pool_rows();
  for_each_row(parallel, a.rows, [&](std::int64_t row) {
    loops.softmax_backward(a.weights + row * a.patches, a.gradient + row * a.patches, a.patches);
  });
  return {};
}

Status pooled_pairs(const PooledPairs& a, const Parallel& parallel) {
  if (Status status = check(a); !status.ok() || a.rows == 0) return status;
  const PoolRows& loops = pool_rows();
  for_each_row(parallel, a.rows, [&](std::int64_t row) { finish_pair(a, loops, row); });
  return {};
}

}  // namespace tessera::kernels::cpu
