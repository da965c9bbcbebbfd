#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include "src/objectives/add_objective.h"
#include "src/objectives/pairs/contrast.h"
#include "src/objectives/pairs/pair_objective.h"
#include "src/objectives/pairs/ring_columns.h"
#include <tessera/base/error.h>
#include <tessera/objectives/patch_weights.h>
#include <tessera/ops/activation_checkpoint.h>

namespace tessera {
namespace {

struct PaclSettings {
  ContrastSettings pairs;
  std::optional<std::int64_t> embed_dim;
  std::optional<std::int64_t> image_width;
  bool embedder = true;
  std::optional<std::int64_t> embedder_hidden;
  std::string embedder_residual = "linear";
  std::optional<double> patch_temperature = 1.0;
  bool normalize_patches = false;
};

void fields(auto& v, PaclSettings& s) {
  fields(v, s.pairs);
  v("embed_dim", s.embed_dim, "width of the text embeddings; null: the model's", config::at_least(1));
  v("image_width", s.image_width, "width of the image tokens; null: embed_dim", config::at_least(1));
  v("embedder", s.embedder,
    "what embeds the patches; true: an embedder inside the objective, which evaluation does not use; false: the image tower's "
    "projection");
  v("embedder_hidden", s.embedder_hidden, "hidden width of the patch embedder; null: embed_dim", config::at_least(1));
  v("embedder_residual", s.embedder_residual, "what is added to the embedder's output; linear: a linear map of its input; identity: "
                                              "the input itself",
    config::one_of({"linear", "identity"}));
  v("patch_temperature", s.patch_temperature, "temperature of the softmax over patches; null: the learned temperature",
    config::above(0.0));
  v("normalize_patches", s.normalize_patches, "sum patch embeddings of unit length instead of unnormalized ones");
}

std::optional<config::Problem> validate(const PaclSettings& s) {
  if (!s.embedder && s.embed_dim && s.image_width && *s.embed_dim != *s.image_width)
    return config::Problem{
        "embedder", concat("false needs image_width equal to embed_dim, got ", *s.image_width, " and ", *s.embed_dim)};
  if (s.embedder_residual == "identity" && s.embed_dim && s.image_width && *s.embed_dim != *s.image_width)
    return config::Problem{"embedder_residual", concat("identity needs image_width equal to embed_dim, got ",
                                                       *s.image_width, " and ", *s.embed_dim, ": use linear")};
  return std::nullopt;
}

/// The vision embedder of PACL: maps x [.., W] to linear2(ReLU(linear1 x)) + residual(x), [.., D].
class PatchEmbedder : public torch::nn::Module {
 public:
  PatchEmbedder(std::int64_t width, std::int64_t hidden, std::int64_t embed_dim, bool linear_residual) {
    linear1_ = register_module("linear1", torch::nn::Linear(width, hidden));
    linear2_ = register_module("linear2", torch::nn::Linear(hidden, embed_dim));
    if (linear_residual) residual_ = register_module("residual", torch::nn::Linear(width, embed_dim));
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor hidden = linear1_(x).relu();
    return linear2_(hidden) + (residual_.is_empty() ? x : residual_(x));
  }

 private:
  torch::nn::Linear linear1_{nullptr};
  torch::nn::Linear linear2_{nullptr};
  torch::nn::Linear residual_{nullptr};
};

/// Patch aligned contrastive learning (Mukhoti et al. 2023). For each text, an image is represented by the mean of its embedded patches,
/// weighted by each patch's similarity to the text. The image view's tokens must be [B, P, W]. Terms `loss_i2t`, `loss_t2i`; details
/// `similarity` [B, B].
class Pacl : public PairObjective<PaclSettings>, public PatchWeights {
 public:
  Pacl(const PaclSettings& settings, const ObjectiveContext& context)
      : PairObjective("pacl", {.text_global = true, .image_tokens = true, .same_width = false}, settings, context),
        embed_dim_(settings.embed_dim.value_or(context.embed_dim)),
        width_(settings.image_width.value_or(embed_dim_)) {
    contrasts_ = {"loss_i2t", "loss_t2i"};
    if (!settings.embedder) return;
    const bool linear = settings.embedder_residual == "linear";
    if (!linear && width_ != embed_dim_)
      user_error("pacl: embedder_residual identity needs image_width equal to embed_dim, got ", width_, " and ",
                 embed_dim_, ": use linear");
    embedder_ = register_module(
        "embedder",
        std::make_shared<PatchEmbedder>(width_, settings.embedder_hidden.value_or(embed_dim_), embed_dim_, linear));
  }

  Losses loss(const PairFeatures& pairs, const Features& /*features*/, const StepContext& context) override {
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

  at::Tensor patch_weights(const TowerFeatures& images, const TowerFeatures& texts) const override {
    const at::NoGradGuard no_grad;
    const at::Tensor patches = unit_rows(embedded(to_compute(images.tokens))),
                     text = unit_rows(to_compute(texts.global)).unsqueeze(1);
    return (at::matmul(text, patches.mT()) * inverse_temperature(settings_.patch_temperature, patches.scalar_type()))
        .softmax(2);
  }

  bool by_token() const override { return false; }

  const char* describe_weights() const override {
    return "The weights with which pacl sums up patches for the word alone, as a text of its own, with the sum 1.";
  }

 private:
  /// Returns the patches in the space of texts, [.., D].
  at::Tensor embedded(const at::Tensor& patches) const { return embedder_ ? embedder_->forward(patches) : patches; }

  std::int64_t embed_dim_;
  std::int64_t width_;
  std::shared_ptr<PatchEmbedder> embedder_;  // null without settings.embedder
};

}  // namespace

void add_pacl(ObjectiveRegistry& list) {
  add_objective<Pacl, PaclSettings>(list, "pacl", "patch aligned contrastive learning (Mukhoti et al. 2023)");
}

}  // namespace tessera
