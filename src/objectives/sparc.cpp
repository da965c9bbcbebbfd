#include <ATen/ATen.h>

#include "src/objectives/pairs/contrast.h"
#include "src/objectives/pairs/features.h"
#include "src/objectives/common/reduction.h"
#include "src/objectives/sparc.h"
#include <tessera/ops/activation_checkpoint.h>
#include <tessera/ops/numeric.h>

namespace tessera {

Needs Sparc::needs() const {
  return settings_.pairs.needs({.tokens = true}, {.tokens = true});
}

std::map<std::string, double> Sparc::chance_levels(std::int64_t pairs) const {
  if (settings_.global_weight == 0) return {};
  return contrast_chance({"loss_global"}, pairs);
}

at::Tensor Sparc::patch_weights(const TowerFeatures& images, const TowerFeatures& texts) const {
  const auto all = [&] { return at::ones(texts.tokens.sizes().slice(0, 2), texts.tokens.options().dtype(at::kBool)); };
  const at::Tensor mask = texts.mask.defined() ? texts.mask : all();
  return sparsify_weights(texts.tokens, images.tokens, mask, settings_.sparsify);
}

const char* Sparc::describe_weights() const {
  return "The weights with which sparc gathers patches for a word: similarities, scaled to 0 to 1, small ones set to "
         "0, with the sum 1 "
         "(eq. 2-4).";
}

Losses Sparc::forward(const Features& features, const StepContext& context) {
  const NoAutocast no_autocast;
  const PairFeatures pairs = pair_features(
      features, "sparc", settings_.pairs,
      {.image_global = true, .text_global = true, .image_tokens = true, .text_tokens = true, .bfloat16_tokens = true},
      context.group);
  const at::Tensor inverse_temperature = scale(pairs.dtype());
  const Contrast global = global_contrast(pairs.image_global, pairs.text_global, inverse_temperature,
                                          {settings_.pairs.chunk}, context.group, pairs.relation);

  const auto body = [sparsify = settings_.sparsify](const std::vector<at::Tensor>& tile) {
    const at::Tensor &text = tile[0], &image = tile[1], &mask = tile[2];
    const at::Tensor grouped = sparsify_group(text, image, mask, sparsify);  // [b, L, D]
    return token_contrast(unit_rows(to_compute(grouped)), unit_rows(to_compute(text)), mask, tile[3]);
  };
  const at::Tensor tokens = map_tiles(body, {pairs.text_tokens, pairs.image_tokens, pairs.text_mask},
                                      {inverse_temperature}, settings_.pairs.chunk);  // [B, L]
  const at::Tensor local = settings_.token_reduction == "batch"
                               ? mean_over_tokens(tokens, pairs.text_mask, context.group)
                               : mean_over_sequences(tokens, pairs.text_mask, pairs.relation, context.group);

  const at::Tensor total = settings_.global_weight * global.loss + settings_.local_weight * local;
  return {total, {{"loss_global", global.loss}, {"loss_local", local}}, {}};
}

}  // namespace tessera
