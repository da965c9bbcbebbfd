#pragma once

#include <ATen/ATen.h>

#include <tessera/distributed/collectives.h>
#include <tessera/objectives/contrastive_objective.h>
#include <tessera/ops/numeric.h>

struct NearestPatchSettings {
  double word_weight = 0.1;
};
void fields(auto& v, NearestPatchSettings& s) {
  v("word_weight", s.word_weight, "weight of the words' distance to their nearest patch", tessera::config::at_least(0));
}

/// CLIP's contrast plus the distance of each caption word to its nearest image patch. Terms `loss_contrast`, `loss_words`.
class NearestPatch : public tessera::ContrastiveObjective {
 public:
  NearestPatch(const NearestPatchSettings& settings, const tessera::ObjectiveContext& context)
      : ContrastiveObjective(context), settings_(settings) {}

  tessera::Needs needs() const override {
    return {.images = {{"image", {.tokens = true}}}, .texts = {{"caption", {.tokens = true}}}};
  }

  tessera::Losses forward(const tessera::Features& features, const tessera::StepContext& context) override {
    const tessera::NoAutocast no_autocast;  // losses are float32 for every training.precision
    const auto unit = [](const at::Tensor& x) { return tessera::unit_rows(tessera::to_compute(x)); };
    const at::Tensor image = unit(features.image().global), text = unit(features.text().global);     // [B, D]
    const at::Tensor patches = unit(features.image().tokens), words = unit(features.text().tokens);  // [B, P or L, D]
    const at::Tensor padding = features.text().mask.logical_not();                                   // [B, L]

    // Compares this rank's rows with the rows of all ranks: column rank * B + b matches row b.
    const at::Tensor images = gather_rows(image, context.group), texts = gather_rows(text, context.group);
    const at::Tensor right =
        at::arange(image.size(0), image.options().dtype(at::kLong)) + context.group.rank() * image.size(0);
    const auto choose = [&, sharpness = scale(image.scalar_type())](const at::Tensor& rows, const at::Tensor& columns) {
      return at::cross_entropy_loss(sharpness * at::matmul(rows, columns.t()), right);
    };
    const at::Tensor contrast = (choose(image, texts) + choose(text, images)) / 2;

    const at::Tensor distance = 1 - at::matmul(words, patches.mT()).amax(-1);  // [B, L]
    const at::Tensor lengths = padding.logical_not().sum(1).clamp_min(1);
    const at::Tensor nearest = (distance.masked_fill(padding, 0).sum(1) / lengths).mean();
    return {contrast + settings_.word_weight * nearest, {{"loss_contrast", contrast}, {"loss_words", nearest}}};
  }

 private:
  NearestPatchSettings settings_;
};
