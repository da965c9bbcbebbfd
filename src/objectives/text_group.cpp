#include <cmath>

#include <ATen/ATen.h>

#include "src/objectives/pairs/contrast.h"
#include "src/objectives/pairs/features.h"
#include "src/objectives/text_group.h"
#include <tessera/base/error.h>
#include <tessera/objectives/caption_loss.h>
#include <tessera/ops/activation_checkpoint.h>
#include <tessera/ops/numeric.h>

namespace tessera {

std::optional<config::Problem> validate(const TextGroupSettings& s) {
  if (s.contrastive_weight == 0 && s.reconstruction_weight == 0)
    return config::Problem{"reconstruction_weight", "is 0, and so is contrastive_weight: there is nothing to train on"};
  return std::nullopt;
}

TextGroup::TextGroup(const TextGroupSettings& settings, const ObjectiveContext& context)
    : ContrastiveObjective(context, std::log(1 / settings.temperature), settings.learned_temperature),
      settings_(settings) {
  if (settings.contrastive_weight != 0) contrasts_ = {"loss_contrastive"};
  if (settings.reconstruction_weight == 0) return;
  if (context.shared == nullptr || !context.shared->token_embedding.defined())
    user_error(
        "objective.reconstruction_weight: captions are decoded with the text encoder's token table, but this model has "
        "none: set it to 0, or model.text.encoder to text_group_encoder");
  decoder_ = register_module("decoder", std::make_shared<CaptionDecoder>(
                                            settings.decoder, context.shared->token_embedding, "objective.decoder"));
}

Needs TextGroup::needs() const {
  const bool decodes = decoder_ != nullptr;
  Needs needs = settings_.pairs.needs({}, {.tokens = decodes, .input_ids = decodes});
  if (settings_.contrastive_weight == 0) needs.images.clear();
  return needs;
}

// Computes the reconstruction loss of the captions for which `present` [B] is true. If `present` is undefined, all captions are present.
at::Tensor TextGroup::reconstruction(const TowerFeatures& text, const at::Tensor& present, const ProcessGroup& group) {
  TORCH_CHECK(text.tokens.defined() && text.input.ids.defined(),
              "text_group: the groups or the ids of the captions are missing: the tower does not output them");
  if (text.mask.defined())
    user_error("objective text_group: the text encoder outputs tokens with padding, not groups: choose text_group_encoder");
  const at::Tensor groups = to_compute(text.tokens);
  const at::Tensor& ids = text.input.ids;
  at::Tensor mask = text.input.mask.defined() ? text.input.mask : at::ones_like(ids, at::kBool);
  if (present.defined()) mask = mask & present.unsqueeze(1);
  if (ids.size(1) < 2) return groups.sum() * 0;  // nothing to predict

  const std::int64_t batch = ids.size(0), chunk = settings_.pairs.chunk.samples.value_or(batch);
  std::vector<at::Tensor> learned = decoder_->parameters(), sums;
  learned.push_back(decoder_->table());
  for (std::int64_t first = 0; first < batch; first += chunk) {
    const auto tile = [&](const at::Tensor& rows) { return rows.slice(0, first, first + chunk); };
    const auto body = [decoder = decoder_, ids = tile(ids), mask = tile(mask)](const at::Tensor& own) {
      return caption_loss_sum(decoder->forward(ids, mask, own), decoder->table(), ids, mask);
    };
    sums.push_back(chunk < batch ? recomputed(body, tile(groups), learned) : body(groups));
  }
  return reduced_caption_loss(at::stack(sums).sum(), mask, settings_.reconstruction_reduction, group);
}

Losses TextGroup::forward(const Features& features, const StepContext& context) {
  const NoAutocast no_autocast;
  Losses losses;
  at::Tensor present;
  if (settings_.contrastive_weight > 0) {
    const PairFeatures pairs = pair_features(features, "text_group", settings_.pairs,
                                             {.image_global = true, .text_global = true}, context.group);
    const at::Tensor sharpness = settings_.learned_temperature
                                     ? scale(pairs.dtype())
                                     : at::full({}, 1 / settings_.temperature, pairs.image_global.options());
    present = pairs.present;
    losses.add("loss_contrastive", settings_.contrastive_weight,
               global_contrast(pairs.image_global, pairs.text_global, sharpness, {settings_.pairs.chunk}, context.group,
                               pairs.relation)
                   .loss);
  }
  if (decoder_)
    losses.add("loss_reconstruction", settings_.reconstruction_weight,
               reconstruction(features.text(settings_.pairs.text_view), present, context.group));
  return losses;
}

}  // namespace tessera
