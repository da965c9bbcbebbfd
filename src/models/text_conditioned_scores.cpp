#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "src/models/text_conditioned_scores.h"
#include "src/ops/thread_pool.h"
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

// Number of scores per tile, counted over heads, texts, patches and images. On a CPU, a tile fits into a core's cache;
// on a GPU, it is large enough to keep the GPU busy.
constexpr std::int64_t kTileOnCpu = 1 << 18;
constexpr std::int64_t kTileOnGpu = 1 << 26;
constexpr double kSmallestLength = 1e-12;

}  // namespace

TextConditionedScores::TextConditionedScores(TextConditionedPool& pool, const at::Tensor& texts) : pool_(pool) {
  const at::Tensor weight = pool_.parameters().front();
  const std::int64_t width = pool_.width();
  TORCH_CHECK(texts.dim() == 2 && texts.size(1) == width, "text-conditioned scores: texts must be [M, ", width,
              "], got ", texts.sizes());
  options_ = weight.options().dtype(compute_dtype(weight)).requires_grad(false);
  const c10::AutoGradMode no_gradients(false);
  const NoAutocast exact;
  const at::Tensor rows = texts.to(options_);
  const double scale = 1 / std::sqrt(static_cast<double>(width / pool_.heads()));
  queries_ = by_head(pool_.project_queries(rows)).mul(scale).contiguous();
  unit_texts_ = unit_rows(rows);
}

at::Tensor TextConditionedScores::by_head(const at::Tensor& rows) const {
  return rows.unflatten(-1, {pool_.heads(), -1}).transpose(-3, -2);
}

at::Tensor TextConditionedScores::checked(const at::Tensor& image_tokens) const {
  TORCH_CHECK(image_tokens.dim() == 3 && image_tokens.size(1) > 0 && image_tokens.size(2) == unit_texts_.size(1),
              "text-conditioned scores: image_tokens must be [N, P, ", unit_texts_.size(1), "] with P above 0, got ",
              image_tokens.sizes());
  return image_tokens.to(options_);
}

TextConditionedScores::Image TextConditionedScores::keys_and_values(const at::Tensor& tokens) const {
  return {by_head(pool_.project_keys(tokens)).contiguous(), by_head(pool_.project_values(tokens)).contiguous()};
}

// The zero token has score 0 and value 0, so it affects only the maximum and the sum of the softmax.
at::Tensor TextConditionedScores::attended(const Image& images, const at::Tensor& queries) const {
  at::Tensor weights = at::matmul(queries, images.keys.mT());  // [N, H, C, P]
  at::Tensor greatest = weights.amax(-1, true);
  if (pool_.zero_token()) greatest.clamp_min_(0);
  weights.sub_(greatest).exp_();
  at::Tensor total = weights.sum(-1, true);
  if (pool_.zero_token()) total.add_(greatest.neg_().exp_());
  return at::matmul(weights, images.values).div_(total).transpose(-3, -2).flatten(-2);
}

at::Tensor TextConditionedScores::cosines(const at::Tensor& attended, const at::Tensor& texts) const {
  at::Tensor pooled = pool_.project_output(attended);
  const at::Tensor length = pooled.norm(2, -1).clamp_min_(kSmallestLength);
  return pooled.mul_(texts).sum(-1).div_(length);
}

std::int64_t TextConditionedScores::tile_of(std::int64_t images, std::int64_t patches) const {
  const std::int64_t scores = options_.device().is_cpu() ? kTileOnCpu : kTileOnGpu;
  return std::max<std::int64_t>(1, scores / (images * pool_.heads() * patches));
}

/// Calls body(begin, end) for ranges of images. On a CPU, a range is one image, and threads divide the images. On a GPU, a range has so
/// many images that comparing them with 64 texts keeps the GPU busy.
template <class Body>
void TextConditionedScores::for_images(std::int64_t images, std::int64_t patches, const Body& body) const {
  if (!options_.device().is_cpu()) {
    const std::int64_t step = std::max<std::int64_t>(1, kTileOnGpu / (64 * pool_.heads() * patches));
    for (std::int64_t begin = 0; begin < images; begin += step) body(begin, std::min(images, begin + step));
    return;
  }
  run_on_pool(static_cast<int>(images), [&](int image) {
    const c10::AutoGradMode no_gradients(false);  // grad mode is per thread
    const NoAutocast exact;
    body(image, image + 1);
  });
}

at::Tensor TextConditionedScores::similarity(const at::Tensor& image_tokens) const {
  const c10::AutoGradMode no_gradients(false);
  const NoAutocast exact;
  const at::Tensor tokens = checked(image_tokens);
  at::Tensor out = at::empty({tokens.size(0), count()}, options_);
  for_images(tokens.size(0), tokens.size(1), [&](std::int64_t first, std::int64_t last) {
    const Image images = keys_and_values(tokens.slice(0, first, last));
    const std::int64_t step = tile_of(last - first, tokens.size(1));
    for (std::int64_t begin = 0; begin < count(); begin += step) {
      const std::int64_t end = std::min(count(), begin + step);
      out.slice(0, first, last)
          .slice(1, begin, end)
          .copy_(cosines(attended(images, queries_.slice(1, begin, end)), unit_texts_.slice(0, begin, end)));
    }
  });
  return out;
}

at::Tensor TextConditionedScores::similarity(const at::Tensor& image_tokens, const at::Tensor& candidates) const {
  const c10::AutoGradMode no_gradients(false);
  const NoAutocast exact;
  const at::Tensor tokens = checked(image_tokens);
  TORCH_CHECK(candidates.dim() == 2 && candidates.size(0) == tokens.size(0),
              "text-conditioned scores: candidates must be [", tokens.size(0), ", k], got ", candidates.sizes());
  const at::Tensor rows = candidates.to(options_.device(), at::kLong);
  at::Tensor out = at::empty(rows.sizes(), options_);
  for_images(tokens.size(0), tokens.size(1), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t n = first; n < last; ++n) {
      const Image image = keys_and_values(tokens.slice(0, n, n + 1));
      const std::int64_t step = tile_of(1, tokens.size(1));
      for (std::int64_t begin = 0; begin < rows.size(1); begin += step) {
        const at::Tensor some = rows[n].slice(0, begin, begin + step);
        out[n]
            .slice(0, begin, begin + step)
            .copy_(
                cosines(attended(image, queries_.index_select(1, some)), unit_texts_.index_select(0, some)).squeeze(0));
      }
    }
  });
  return out;
}

// Scores each patch as if it were the image's only patch. For a single patch, each head's weight w_h is a sigmoid of the head's score. The
// pooled vector is sum_h w_h a_h + b, where a_h = W_o,h v_h is the same for all texts. So the dot products among a_1..a_H and b give the
// pooled vector's norm, and the dot products of a_1..a_H and b with a text give the pooled vector's dot product with the text. This takes
// D + H^2 operations per patch and text, compared with D^2 for applying W_o.
at::Tensor TextConditionedScores::patch_similarity_of(const at::Tensor& tokens) const {
  const std::int64_t heads = pool_.heads(), patches = tokens.size(1);
  const Image image = keys_and_values(tokens);
  const at::Tensor bias = pool_.project_output(at::zeros({tokens.size(2)}, options_));  // [D]
  // For each head, the values with all other heads' parts set to zero: [H, P, D].
  const at::Tensor place = at::eye(heads, options_).view({heads, 1, heads, 1});
  const at::Tensor alone = (image.values[0].unsqueeze(2) * place).flatten(-2);
  const at::Tensor parts = pool_.project_output(alone).sub_(bias);
  // Computes the norms in double: large terms cancel, so in float32 a norm would lose most of its precision.
  const at::Tensor exact_parts = parts.transpose(0, 1).to(at::kDouble), exact_bias = bias.to(at::kDouble);
  const at::Tensor gram = at::matmul(exact_parts, exact_parts.mT());         // [P, H, H]
  const at::Tensor with_bias = at::matmul(exact_parts, exact_bias).mul_(2);  // [P, H]
  const at::Tensor bias_length = exact_bias.dot(exact_bias);
  at::Tensor out = at::empty({patches, count()}, options_);
  const std::int64_t step = tile_of(1, patches);
  for (std::int64_t begin = 0; begin < count(); begin += step) {
    const at::Tensor texts = unit_texts_.slice(0, begin, begin + step);                           // [C, D]
    at::Tensor weights = at::matmul(image.keys[0], queries_.slice(1, begin, begin + step).mT());  // [H, P, C]
    weights = pool_.zero_token() ? weights.sigmoid_() : at::ones_like(weights);
    const at::Tensor along = at::matmul(parts, texts.t()).mul_(weights).sum(0).add_(at::matmul(texts, bias));  // [P, C]
    const at::Tensor exact = weights.transpose(0, 1).to(at::kDouble);  // [P, H, C]
    const at::Tensor square =
        at::matmul(gram, exact).add_(with_bias.unsqueeze(-1)).mul_(exact).sum(1).add_(bias_length);
    const at::Tensor length = square.clamp_min_(0).sqrt_().clamp_min_(kSmallestLength);
    out.slice(1, begin, begin + step).copy_(along.to(at::kDouble).div_(length));
  }
  return out;
}

at::Tensor TextConditionedScores::patch_similarity(const at::Tensor& image_tokens) const {
  const c10::AutoGradMode no_gradients(false);
  const NoAutocast exact;
  const at::Tensor tokens = checked(image_tokens);
  at::Tensor out = at::empty({tokens.size(0), tokens.size(1), count()}, options_);
  for_images(tokens.size(0), tokens.size(1), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t n = first; n < last; ++n) out[n].copy_(patch_similarity_of(tokens.slice(0, n, n + 1)));
  });
  return out;
}

at::Tensor TextConditionedScores::attention_of(const at::Tensor& tokens) const {
  const at::Tensor keys = by_head(pool_.project_keys(tokens))[0];  // [H, P, D/H]
  const std::int64_t patches = tokens.size(1), step = tile_of(1, patches);
  at::Tensor out = at::empty({patches, count()}, options_);
  for (std::int64_t begin = 0; begin < count(); begin += step) {
    at::Tensor scores = at::matmul(keys, queries_.slice(1, begin, begin + step).mT());  // [H, P, C]
    if (pool_.zero_token()) scores = at::constant_pad_nd(scores, {0, 0, 0, 1}, 0);
    out.slice(1, begin, begin + step).copy_(scores.softmax(1).narrow(1, 0, patches).mean(0));
  }
  return out;
}

at::Tensor TextConditionedScores::attention(const at::Tensor& image_tokens) const {
  const c10::AutoGradMode no_gradients(false);
  const NoAutocast exact;
  const at::Tensor tokens = checked(image_tokens);
  at::Tensor out = at::empty({tokens.size(0), tokens.size(1), count()}, options_);
  for_images(tokens.size(0), tokens.size(1), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t n = first; n < last; ++n) out[n].copy_(attention_of(tokens.slice(0, n, n + 1)));
  });
  return out;
}

}  // namespace tessera
