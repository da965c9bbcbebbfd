#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include <tessera/base/log.h>
#include <tessera/batch.h>
#include <tessera/config/registry.h>
#include <tessera/features.h>
#include <tessera/models/tower.h>
#include <tessera/preprocessing.h>

namespace tessera {

/// Settings of the whole model. The defaults are CLIP with a ViT-B/16 image tower.
struct ModelSettings {
  TowerSettings image = {{"vit"}, {"cls"}, {"linear"}};
  std::optional<TowerSettings> text = TowerSettings{{"text_transformer"}, {"eos"}, {"linear"}};
  Preprocessing preprocessing;
  bool unit_length = false;
};

template <class Visitor>
void fields(Visitor& v, ModelSettings& s) {
  v("image", s.image, "image tower");
  v("text", s.text, "text tower; null: none (objectives that use only images)");
  v("preprocessing", s.preprocessing, "how an image becomes the model's input");
  v("unit_length", s.unit_length, "whether the towers' embeddings are normalized to length 1 (as OpenCLIP's CoCa returns them)");
}

/// Fills in all defaults and checks all names, settings and combinations of the two towers. An image encoder without
/// image_size gets the preprocessing's image_size. A preprocessing that needs a patch_size (for naflex) but has none
/// gets the encoder's patch_size. `path` is where the settings are in the configuration, for messages. Throws
/// UserError.
ModelSettings resolve(const ModelSettings& settings, const std::string& path = "model");

/// Returns the settings for images of this size.
ModelSettings with_image_size(ModelSettings settings, config::Size size);

/// An image tower and, optionally, a text tower. The model computes token features, slots and so on only if `needs` asks for them. Weights
/// are initialized from torch's default generator: to get the same model again, call torch::manual_seed (or at::manual_seed) first. The
/// text tower is built first, so that the image tower can share its parameters.
class DualEncoder : public torch::nn::Module {
 public:
  /// `path` is where the settings are in the configuration, for messages. Throws UserError if names or settings are
  /// wrong or the towers' embedding widths differ.
  explicit DualEncoder(const ModelSettings& settings, const std::string& path = "model");

  /// Encodes one image view: pixels or patches (uint8, which are normalized here with the settings' mean and std, or float, which are
  /// already normalized), or regions. Throws c10::Error for a view that the image tower does not accept.
  TowerFeatures encode_image(const TowerInput& view, const ViewNeeds& needs = {});
  TowerFeatures encode_image(const at::Tensor& pixels, const ViewNeeds& needs = {});
  /// Returns the image encoder's output for pixels of the configured size. A view may hold this output in `encoded` instead of the pixels;
  /// encode_image() then returns the same features.
  EncodedImages encode_images(const at::Tensor& pixels);
  /// Encodes one text view. An undefined mask means that all ids are real. Throws c10::Error if there is no text tower.
  TowerFeatures encode_text(const TowerInput& view, const ViewNeeds& needs = {});
  /// Returns the features that `needs` asks for. Views that have the same shape and the same needs pass through their tower as one larger
  /// batch; each row still draws the random numbers that it would draw if its view were encoded separately (RowRngScope). Throws c10::Error
  /// if a view is missing.
  Features forward(const Batch& batch, const Needs& needs);

  /// The settings with all defaults filled in.
  const ModelSettings& settings() const { return settings_; }
  std::int64_t embed_dim() const { return image_->embed_dim(); }
  /// The image tower's patch grid at the configured image size.
  config::Size grid() const { return image_->encoder().grid(); }
  Tower& image_tower() const { return *image_; }
  bool has_text_tower() const { return text_ != nullptr; }
  /// Throws c10::Error if the model has no text tower.
  Tower& text_tower() const;
  /// Parameters that objectives may share with the towers.
  SharedParameters& shared() { return shared_; }

  /// Parameters and buffers under OpenCLIP's names (visual.*, token_embedding.weight, text_projection, ...). The tensors are the model's
  /// own parameters and buffers, not copies; requires_grad distinguishes parameters from buffers.
  std::map<std::string, at::Tensor> state_dict() const;
  /// Returns the numbers of layer-decay steps of Tower::blocks_behind() for both towers, under the names of state_dict().
  std::map<std::string, std::int64_t> blocks_behind() const;
  /// Loads tensors by the names of state_dict(). Accepts OpenCLIP's `text.` prefix and resamples position embeddings that have another
  /// grid, which the log says at the level `resampling`. Throws UserError naming `origin` and the tensor that is missing, of the wrong
  /// shape, or left over (logit_scale and logit_bias may be left over). After an error the model is unchanged.
  void load_state(const std::map<std::string, at::Tensor>& tensors, const std::string& origin,
                  log::Level resampling = log::Level::warning);

 private:
  at::Tensor normalize(const at::Tensor& pixels) const;
  at::Tensor normalize_patches(const at::Tensor& patches) const;
  TowerFeatures encode(Tower& tower, const TowerInput& view, const ViewNeeds& needs) const;
  TowerFeatures encode_captions(Tower& tower, const TowerInput& view, const ViewNeeds& needs) const;
  std::map<std::string, TowerFeatures> encode_views(Tower& tower, const std::map<std::string, TowerInput>& views,
                                                    const std::map<std::string, ViewNeeds>& needs) const;

  ModelSettings settings_;
  SharedParameters shared_;
  std::shared_ptr<Tower> image_, text_;  // text_ is null if there is no text tower
  at::Tensor mean_, deviation_;
  at::Tensor weight_;  // a parameter of the image tower
};

/// Whether a name in a model file belongs to the image tower ("visual.*").
bool is_image_parameter(const std::string& name);

}  // namespace tessera
