#include <ATen/ATen.h>

#include "src/evaluation/conditioned_embedder.h"
#include <tessera/base/error.h>

namespace tessera {

ConditionedEmbedder::ConditionedEmbedder(const Embedder& model, std::shared_ptr<TextConditionedPool> pool,
                                         std::optional<std::int64_t> candidates, std::string option)
    : EmbedderView(model), pool_(std::move(pool)), candidates_(candidates), option_(std::move(option)) {}

TowerFeatures ConditionedEmbedder::encode_images(const TowerInput& images, const ViewNeeds& needs) const {
  ViewNeeds with_tokens = needs;
  with_tokens.tokens = true;
  TowerFeatures features = EmbedderView::encode_images(images, with_tokens);
  const std::int64_t width = pool_->width();
  if (!features.tokens.defined() || features.tokens.size(1) == 0)
    user_error(option_, ": this model's image tower outputs no tokens for texts to attend to: take a vit");
  if (features.tokens.size(2) != width || features.global.size(1) != width)
    user_error(option_, ": the text-conditioned pool takes embeddings of width ", width, ", but this model's are ",
               features.global.size(1), " and its image tokens ", features.tokens.size(2),
               " wide: take a projection that maps both into one space (linear), as the objective was trained with");
  if (features.mask.defined() && !features.mask.all().item<bool>())
    user_error(option_, ": this model's images have padded tokens, which the text-conditioned pool does not support");
  return features;
}

TowerFeatures ConditionedEmbedder::classes(const TowerFeatures& prompts, std::int64_t per_class) const {
  TowerFeatures out = EmbedderView::classes(prompts, per_class);
  const at::Tensor lengths = prompts.global.to(at::kDouble).norm(2, -1).view({-1, per_class}).mean(1, true);
  out.global = out.global.to(at::kDouble) * lengths;
  return out;
}

const metrics::ConditionedSimilarity& ConditionedEmbedder::with(const TowerFeatures& texts) const {
  if (texts.global.size(1) != pool_->width())
    user_error(option_, ": the text-conditioned pool takes embeddings of width ", pool_->width(),
               ", but those of texts are ", texts.global.size(1), " wide");
  if (!last_ || !last_texts_.is_same(texts.global)) {
    last_.emplace(*pool_, texts.global);
    last_texts_ = texts.global;
  }
  return *last_;
}

at::Tensor ConditionedEmbedder::similarity(const TowerFeatures& images, const TowerFeatures& texts) const {
  const metrics::ConditionedSimilarity& scores = with(texts);
  return candidates_ ? scores.among_nearest(images.global, images.tokens, *candidates_) : scores.exact(images.tokens);
}

}  // namespace tessera
