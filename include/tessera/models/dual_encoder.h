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

/// A tower = encoder (tokens out) + read-out (tokens -> vector) + projection (-> shared space).
struct TowerSettings {
  config::Choice encoder;
  config::Choice readout;
  config::Choice projection;
};

struct ModelSettings {
  TowerSettings image;
  TowerSettings text;
  Preprocessing preprocessing;
};

/// Image tower and text tower. What it computes is decided by `Needs`: token features only when asked for.
class DualEncoder : public torch::nn::Module {
 public:
  /// Throws UserError when names or settings are wrong or the towers' embedding widths differ.
  explicit DualEncoder(const ModelSettings& settings);

  /// pixels: uint8 [B, 3, H, W] (normalised here, with the settings' mean and std) or float, already normalised.
  ImageFeatures encode_image(const at::Tensor& pixels, bool tokens = false);
  TextFeatures encode_text(const TextBatch& text, bool tokens = false);
  Features forward(const Batch& batch, const Needs& needs);

  const ModelSettings& settings() const;
  std::int64_t embed_dim() const;
  /// Patch grid of the image tower at the configured image size.
  config::Size grid() const;

  /// Parameters and buffers under OpenCLIP's names (visual.*, token_embedding.weight, text_projection, ...). The tensors share
  /// memory with the model.
  std::map<std::string, at::Tensor> named_state() const;
  /// Copies tensors in by those names; accepts OpenCLIP's `text.` prefix and resamples position embeddings of another grid.
  /// Throws UserError naming `origin` and the tensor: missing, mis-shaped, or left over (logit_scale and logit_bias are
  /// allowed to be there).
  void load_state(const std::map<std::string, at::Tensor>& tensors, const std::string& origin);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace tessera
