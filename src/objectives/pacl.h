#pragma once

#include <torch/nn/modules/linear.h>

#include <tessera/objectives/contrastive_objective.h>
#include <tessera/objectives/patch_weights.h>

namespace tessera {

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

template <class Visitor>
void fields(Visitor& v, PaclSettings& s) {
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
std::optional<config::Problem> validate(const PaclSettings& s);

/// The vision embedder of PACL: maps x [.., W] to linear2(ReLU(linear1 x)) + residual(x), [.., D].
class PatchEmbedder : public torch::nn::Module {
 public:
  PatchEmbedder(std::int64_t width, std::int64_t hidden, std::int64_t embed_dim, bool linear_residual);
  at::Tensor forward(const at::Tensor& x);

 private:
  torch::nn::Linear linear1_{nullptr};
  torch::nn::Linear linear2_{nullptr};
  torch::nn::Linear residual_{nullptr};
};

/// Patch aligned contrastive learning (Mukhoti et al. 2023). For each text, an image is represented by the mean of its embedded patches,
/// weighted by each patch's similarity to the text. The image view's tokens must be [B, P, W]. Terms `loss_i2t`, `loss_t2i`; details
/// `similarity` [B, B].
class Pacl : public ContrastiveObjective, public PatchWeights {
 public:
  Pacl(const PaclSettings& settings, const ObjectiveContext& context);
  Losses forward(const Features& features, const StepContext& context) override;
  Needs needs() const override;
  std::map<std::string, double> chance_levels(std::int64_t pairs) const override;
  at::Tensor patch_weights(const TowerFeatures& images, const TowerFeatures& texts) const override;
  bool by_token() const override { return false; }
  const char* describe_weights() const override;

 private:
  /// Returns the patches in the space of texts, [.., D].
  at::Tensor embedded(const at::Tensor& patches) const;

  PaclSettings settings_;
  std::int64_t embed_dim_;
  std::int64_t width_;
  std::shared_ptr<PatchEmbedder> embedder_;  // null without settings.embedder
};

}  // namespace tessera
