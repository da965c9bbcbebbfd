#include <ATen/ATen.h>

#include "src/evaluation/embedder_views.h"
#include "src/evaluation/metrics/slots.h"
#include "src/evaluation/token_space.h"
#include "src/models/token_multi_hot.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

ViewNeeds with_slots(ViewNeeds needs) {
  needs.slots = true;
  return needs;
}

void refuse_patches(const ViewNeeds& needs) {
  if (needs.dense)
    user_error("--slots changes the embeddings of whole images, not those of patches: measure segmentation without it");
}

TowerFeatures of_chosen(TowerFeatures features, const at::Tensor& chosen, const ViewNeeds& needs) {
  if (features.global.size(0) == 0) return features;
  features.global = metrics::slot_embeddings(features.slots, chosen);
  if (!needs.slots) features.slots = at::Tensor();
  return features;
}

}  // namespace

void check_same_slots(const std::string& option, const at::Tensor& images, const at::Tensor& texts) {
  if (images.sizes().slice(1) != texts.sizes().slice(1))
    user_error(option, ": this model's towers output different slots, ", images.size(1), " of width ", images.size(2),
               " for images and ", texts.size(1), " of width ", texts.size(2), " for texts");
}

std::int64_t count_slots(const Embedder& model, const std::string& option) {
  if (!model.takes_texts())
    user_error(option, ": slots of images are compared with those of texts, but this model has no text tower");
  const config::Size size = model.preprocessing().image_size;
  const at::Tensor image = model.encode_images(at::zeros({1, 3, size.height, size.width}, at::kByte), with_slots({})).slots;
  const at::Tensor text = model.encode_texts({"a"}, with_slots({})).slots;
  if (!image.defined() || !text.defined())
    user_error(option, ": the read-out of this model's ", image.defined() ? "text" : "image",
               " tower outputs no slots: take a model whose towers both read out by slots, as sparo does");
  check_same_slots(option, image, text);
  return image.size(1);
}

SlotEmbedder::SlotEmbedder(const Embedder& model, const std::vector<std::int64_t>& slots)
    : EmbedderView(model), slots_(at::tensor(slots, at::kLong)) {}

TowerFeatures SlotEmbedder::encode_images(const TowerInput& images, const ViewNeeds& needs) const {
  refuse_patches(needs);
  return of_chosen(EmbedderView::encode_images(images, with_slots(needs)), slots_, needs);
}

TowerFeatures SlotEmbedder::encode_texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const {
  return of_chosen(EmbedderView::encode_texts(texts, with_slots(needs)), slots_, needs);
}

TowerFeatures CutEmbedder::cut(const TowerFeatures& features) const {
  TowerFeatures out;
  out.global = features.global.narrow(-1, 0, width_);
  return out;
}

std::string CutEmbedder::prefix() const {
  return concat("width_", width_, "_");
}

std::vector<CutEmbedder> cut_embedders(const Embedder& model, const std::vector<std::int64_t>& widths, std::int64_t whole) {
  std::vector<CutEmbedder> out;
  if (!model.compares_by_cosine() || model.token_space() > 0) return out;
  for (const std::int64_t width : widths)
    if (width < whole) out.emplace_back(model, width);
  return out;
}

MaskEmbedder::MaskEmbedder(const Embedder& model, at::Tensor weights, std::string path)
    : EmbedderView(model), weights_(std::move(weights)), path_(std::move(path)) {}

TowerFeatures MaskEmbedder::encode_images(const TowerInput& images, const ViewNeeds& needs) const {
  refuse_patches(needs);
  TowerFeatures features = EmbedderView::encode_images(images, needs);
  const std::int64_t width = features.global.size(1), parts = weights_.size(0);
  if (parts == 0 || width % parts != 0)
    user_error("--slots ", path_, ": a mask of ", parts, " weights does not fit this model's embedding of ", width, " dimensions");
  features.global = features.global * weights_.to(features.global.scalar_type()).repeat_interleave(width / parts);
  return features;
}

MultiHotEmbedder::MultiHotEmbedder(const Embedder& model, const std::string& option) : EmbedderView(model) {
  require_token_space(model, option);
}

TowerFeatures MultiHotEmbedder::encode_texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const {
  const TowerInput input = tokenizer()->encode_batch(texts);
  TowerFeatures out;
  out.global = token_multi_hot(input.ids, input.mask, token_space(), at::tensor(tokenizer()->special_ids(), at::kLong)).to(at::kFloat);
  if (needs.input_ids) out.input = input;
  return out;
}

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
