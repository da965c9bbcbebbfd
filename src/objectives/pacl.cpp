#include <ATen/ATen.h>

#include "src/objectives/pairs/contrast.h"
#include "src/objectives/pairs/features.h"
#include "src/objectives/pairs/ring_columns.h"
#include "src/objectives/pacl.h"
#include <tessera/base/error.h>
#include <tessera/ops/activation_checkpoint.h>
#include <tessera/ops/numeric.h>

namespace tessera {

std::optional<config::Problem> validate(const PaclSettings& s) {
  if (!s.embedder && s.embed_dim && s.image_width && *s.embed_dim != *s.image_width)
    return config::Problem{
        "embedder", concat("false needs image_width equal to embed_dim, got ", *s.image_width, " and ", *s.embed_dim)};
  if (s.embedder_residual == "identity" && s.embed_dim && s.image_width && *s.embed_dim != *s.image_width)
    return config::Problem{"embedder_residual", concat("identity needs image_width equal to embed_dim, got ",
                                                       *s.image_width, " and ", *s.embed_dim, ": use linear")};
  return std::nullopt;
}

PatchEmbedder::PatchEmbedder(std::int64_t width, std::int64_t hidden, std::int64_t embed_dim, bool linear_residual) {
  linear1_ = register_module("linear1", torch::nn::Linear(width, hidden));
  linear2_ = register_module("linear2", torch::nn::Linear(hidden, embed_dim));
  if (linear_residual) residual_ = register_module("residual", torch::nn::Linear(width, embed_dim));
}

at::Tensor PatchEmbedder::forward(const at::Tensor& x) {
  const at::Tensor hidden = linear1_(x).relu();
  return linear2_(hidden) + (residual_.is_empty() ? x : residual_(x));
}

Pacl::Pacl(const PaclSettings& settings, const ObjectiveContext& context)
    : ContrastiveObjective(context),
      settings_(settings),
      embed_dim_(settings.embed_dim.value_or(context.embed_dim)),
      width_(settings.image_width.value_or(embed_dim_)) {
  if (!settings.embedder) return;
  const bool linear = settings.embedder_residual == "linear";
  if (!linear && width_ != embed_dim_)
    user_error("pacl: embedder_residual identity needs image_width equal to embed_dim, got ", width_, " and ",
               embed_dim_, ": use linear");
  embedder_ = register_module(
      "embedder",
      std::make_shared<PatchEmbedder>(width_, settings.embedder_hidden.value_or(embed_dim_), embed_dim_, linear));
}

Needs Pacl::needs() const {
  return settings_.pairs.needs({.tokens = true});
}

std::map<std::string, double> Pacl::chance_levels(std::int64_t pairs) const {
  return contrast_chance({"loss_i2t", "loss_t2i"}, pairs);
}

at::Tensor Pacl::embedded(const at::Tensor& patches) const {
  return embedder_ ? embedder_->forward(patches) : patches;
}

at::Tensor Pacl::patch_weights(const TowerFeatures& images, const TowerFeatures& texts) const {
  const at::NoGradGuard no_grad;
  const at::Tensor patches = unit_rows(embedded(to_compute(images.tokens))),
                   text = unit_rows(to_compute(texts.global)).unsqueeze(1);
  return (at::matmul(text, patches.mT()) * inverse_temperature(settings_.patch_temperature, patches.scalar_type()))
      .softmax(2);
}

const char* Pacl::describe_weights() const {
  return "The weights with which pacl sums up patches for the word alone, as a text of its own, with the sum 1.";
}

Losses Pacl::forward(const Features& features, const StepContext& context) {
  const NoAutocast no_autocast;
  const PairFeatures pairs =
      pair_features(features, "pacl", settings_.pairs, {.text_global = true, .image_tokens = true, .same_width = false},
                    context.group);
  if (pairs.image_tokens.size(2) != width_)
    user_error("objective pacl: image_tokens must be [B, P, W] with W = image_width = ", width_, ", got ", pairs.image_tokens.sizes());
  TORCH_CHECK(pairs.text_global.size(1) == embed_dim_,
              "pacl: text_global must be [B, D] with D = embed_dim = ", embed_dim_, ", got ",
              pairs.text_global.sizes());
  const at::Tensor raw = embedded(pairs.image_tokens);  // [B, P, D]
  const at::Tensor unit = unit_rows(raw);
  const at::Tensor texts = unit_rows(pairs.text_global);  // [B, D]

  // Returns the similarities [B, t] of this rank's images to a tile of t texts.
  const auto body = [](const std::vector<at::Tensor>& tile) {
    const at::Tensor &text = tile[0], &unit_patches = tile[1], &patches = tile[2], &sharpness = tile[3];
    const at::Tensor weights = (at::matmul(unit_patches, text.t()) * sharpness).softmax(1);  // [B, P, t]
    const at::Tensor pooled = at::matmul(weights.mT(), patches);                             // [B, t, D]
    return (unit_rows(pooled) * text).sum(-1);                                               // [B, t]
  };
  const at::Tensor sharpness = inverse_temperature(settings_.patch_temperature, pairs.dtype());
  const std::vector<at::Tensor> own = {unit, settings_.normalize_patches ? unit : raw, sharpness};
  const at::Tensor similarity = map_texts(body, own, {texts}, settings_.pairs.chunk, context.group);  // [B, C]

  const Contrast contrast = info_nce(similarity, similarity, scale(pairs.dtype()), context.group, pairs.relation);
  Losses losses{contrast.loss, {{"loss_i2t", contrast.i2t}, {"loss_t2i", contrast.t2i}}, {}};
  if (context.inspect) losses.details = {{"similarity", similarity.detach()}};
  return losses;
}

}  // namespace tessera
