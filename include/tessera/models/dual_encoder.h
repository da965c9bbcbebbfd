#pragma once

#include <map>
#include <memory>
#include <optional>
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
  std::optional<TowerSettings> text = TowerSettings{{"text_transformer"}, {"eos"}, {"linear"}};
  Preprocessing preprocessing;
  bool unit_length = false;
};

template <class Visitor>
void fields(Visitor& v, ModelSettings& s) {
  v("image", s.image, "image tower");
  v("text", s.text, "text tower; null: none (objectives on images alone)");
  v("preprocessing", s.preprocessing, "how a picture becomes the model's input");
  v("unit_length", s.unit_length, "whether the towers' embeddings are divided by their lengths (OpenCLIP's CoCa gives them so)");
}

/// All defaults spelt out and all names, settings and combinations of the two towers checked; an image encoder without
/// image_size gets the preprocessing's, a preprocessing without the patch_size that naflex needs the encoder's. `path` is where the settings stand, for messages. Throws UserError.
ModelSettings resolve(const ModelSettings& settings, const std::string& path = "model");

/// Image tower and text tower; the latter may be missing. Needs decide what it computes: token features, slots and so on
/// only when asked for. Weights start from torch's default generator: call torch::manual_seed (or at::manual_seed) before
/// for the same model again. The text tower is built first, so that the image tower can share its parameters.
class DualEncoder : public torch::nn::Module {
 public:
  /// `path` is where the settings stand, for messages. Throws UserError when names or settings are wrong or the towers'
  /// embedding widths differ.
  explicit DualEncoder(const ModelSettings& settings, const std::string& path = "model");

  /// One image view: pixels or patches (uint8, normalized here with the settings' mean and std; or float, already
  /// normalized) or regions. Throws c10::Error for a view that the image tower does not take.
  TowerFeatures encode_image(const TowerInput& view, const ViewNeeds& needs = {});
  TowerFeatures encode_image(const at::Tensor& pixels, const ViewNeeds& needs = {});
  /// What the image encoder alone gives for pixels of the configured size. As a view's `encoded` it takes the pixels'
  /// place: the features are the same.
  EncodedPictures encode_pictures(const at::Tensor& pixels);
  /// One text view. An undefined mask means that all ids are real. Throws c10::Error when there is no text tower.
  TowerFeatures encode_text(const TowerInput& view, const ViewNeeds& needs = {});
  /// The views and features that `needs` names. Views of one shape that need the same go through their tower as one
  /// larger batch, with the random numbers of each row that it would have alone (RowRngScope). Throws c10::Error if a
  /// view is missing.
  Features forward(const Batch& batch, const Needs& needs);

  /// With all defaults spelt out.
  const ModelSettings& settings() const;
  std::int64_t embed_dim() const;
  /// Patch grid of the image tower at the configured image size.
  config::Size grid() const;
  Tower& image_tower() const;
  bool has_text_tower() const;
  /// Throws c10::Error when there is none.
  Tower& text_tower() const;
  /// What objectives may share with the towers.
  SharedParameters& shared();

  /// Parameters and buffers under OpenCLIP's names (visual.*, token_embedding.weight, text_projection, ...). The
  /// tensors share memory with the model (they are the parameters themselves: requires_grad tells parameters from
  /// buffers).
  std::map<std::string, at::Tensor> state_dict() const;
  /// Steps of layer decay between a parameter, by such a name, and its tower's output (Tower::blocks_behind).
  std::int64_t blocks_behind(const std::string& name) const;
  /// Copies tensors in by those names; accepts OpenCLIP's `text.` prefix and resamples position embeddings of another
  /// grid. Throws UserError naming `origin` and the tensor: missing, mis-shaped, or left over (logit_scale and
  /// logit_bias are allowed to be there). On an error the model is unchanged.
  void load_state(const std::map<std::string, at::Tensor>& tensors, const std::string& origin);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// Whether a name of a model file is the image tower's ("visual.*").
bool is_image_parameter(const std::string& name);

}  // namespace tessera
