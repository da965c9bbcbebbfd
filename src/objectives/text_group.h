#pragma once

#include <memory>
#include <string>

#include "src/models/caption_decoder.h"
#include <tessera/objectives/contrastive_objective.h>

namespace tessera {

struct TextGroupSettings {
  ContrastSettings pairs;
  double temperature = 0.07;
  bool learned_temperature = false;
  double contrastive_weight = 1.0;
  double reconstruction_weight = 1.0;
  std::string reconstruction_reduction = "mean";
  CaptionDecoderSettings decoder;
};

void fields(auto& v, TextGroupSettings& s) {
  fields(v, s.pairs);
  v("temperature", s.temperature, "temperature tau of the contrast; with learned_temperature, its initial value", config::above(0));
  v("learned_temperature", s.learned_temperature, "make the temperature a parameter, as in CLIP");
  v("contrastive_weight", s.contrastive_weight, "weight of the contrast; 0: off, and no images are loaded",
    config::at_least(0));
  v("reconstruction_weight", s.reconstruction_weight, "lambda, weight of the reconstruction (eq. 5); 0: no decoder",
    config::at_least(0));
  v("reconstruction_reduction", s.reconstruction_reduction,
    "mean: the mean over the batch's predicted tokens; sum: the sum over them (the paper's eq. 10)",
    config::one_of({"mean", "sum"}));
  v("decoder", s.decoder, "the caption decoder; it has the text encoder's width and uses its token table");
}
std::optional<config::Problem> validate(const TextGroupSettings& settings);

/// The text group transformer's losses (section 2.2): the contrast of global embeddings (eq. 6-8), and the reconstruction of each caption
/// from its groups by a small decoder (eq. 9-10). The groups are the text view's `tokens` as the encoder outputs them (read-out `groups`,
/// projection none). If `chunk` is set, the decoder processes only `chunk` captions at a time and recomputes its activations in the
/// backward pass. With skip_absent, the captions of absent pairs are not reconstructed. Terms: `loss_contrastive` and
/// `loss_reconstruction`; a term with weight 0 is left out. Parameters: `logit_scale` (if learned_temperature is set) and `decoder.*`.
class TextGroup : public ContrastiveObjective {
 public:
  /// Throws UserError if a decoder is needed and the text encoder has no token table.
  TextGroup(const TextGroupSettings& settings, const ObjectiveContext& context);
  Losses forward(const Features& features, const StepContext& context) override;
  Needs needs() const override;

 private:
  at::Tensor reconstruction(const TowerFeatures& text, const at::Tensor& present, const ProcessGroup& group);

  TextGroupSettings settings_;
  std::shared_ptr<CaptionDecoder> decoder_;  // null if the reconstruction is off
};

}  // namespace tessera
