#pragma once

#include <map>
#include <memory>
#include <string>

#include <tessera/batch.h>
#include <tessera/config/registry.h>
#include <tessera/features.h>
#include <tessera/models/tower.h>
#include <tessera/preprocessing.h>

namespace tessera {

/// The whole model. Defaults: CLIP with a ViT-B/16 image tower.
struct ModelSettings {
  TowerSettings image = {{"vit"}, {"cls"}, {"linear"}};
  TowerSettings text = {{"text_transformer"}, {"eos"}, {"linear"}};
  Preprocessing preprocessing;
};

template <class Visitor>
void fields(Visitor& v, ModelSettings& s) {
  v("image", s.image, "image tower");
  v("text", s.text, "text tower");
  v("preprocessing", s.preprocessing, "how a picture becomes the model's input");
}

/// All defaults spelt out and all names, settings and combinations of the two towers checked; an image encoder without
/// image_size gets the preprocessing's. `path` is where the settings stand, for messages. Throws UserError.
ModelSettings resolve(const ModelSettings& settings, const std::string& path = "model");

/// Image tower and text tower. What it computes is decided by `Needs`: token features only when asked for.
/// Weights start from torch's default generator: call torch::manual_seed (or at::manual_seed) before for the same model
/// again.
class DualEncoder : public torch::nn::Module {
 public:
  /// `path` is where the settings stand, for messages. Throws UserError when names or settings are wrong or the towers'
  /// embedding widths differ.
  explicit DualEncoder(const ModelSettings& settings, const std::string& path = "model");

  /// pixels: uint8 [B, 3, H, W] (normalized here, with the settings' mean and std) or float, already normalized.
  /// With `tokens` also ImageFeatures::tokens and ::dense.
  ImageFeatures encode_image(const at::Tensor& pixels, bool tokens = false);
  /// With `tokens` also TextFeatures::tokens. An undefined mask means that all ids are real.
  TextFeatures encode_text(const TextBatch& text, bool tokens = false);
  /// The views and features that `needs` names; ImageFeatures::dense is not among them. Throws c10::Error if a view is
  /// missing.
  Features forward(const Batch& batch, const Needs& needs);

  /// With all defaults spelt out.
  const ModelSettings& settings() const;
  std::int64_t embed_dim() const;
  /// Patch grid of the image tower at the configured image size.
  config::Size grid() const;
  Tower& image_tower();
  Tower& text_tower();

  /// Parameters and buffers under OpenCLIP's names (visual.*, token_embedding.weight, text_projection, ...). The
  /// tensors share memory with the model (they are the parameters themselves: requires_grad tells parameters from
  /// buffers).
  std::map<std::string, at::Tensor> state_dict() const;
  /// Copies tensors in by those names; accepts OpenCLIP's `text.` prefix and resamples position embeddings of another
  /// grid. Throws UserError naming `origin` and the tensor: missing, mis-shaped, or left over (logit_scale and
  /// logit_bias are allowed to be there). On an error the model is unchanged.
  void load_state(const std::map<std::string, at::Tensor>& tensors, const std::string& origin);

 private:
  ImageFeatures run_image_tower(const at::Tensor& pixels, bool tokens, bool dense);

  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace tessera
