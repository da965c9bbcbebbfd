#include <ATen/ATen.h>

#include "src/evaluation/metrics/slots.h"
#include "src/evaluation/slot_embedder.h"

namespace tessera {
namespace {

ViewNeeds with_slots(ViewNeeds needs) {
  needs.slots = true;
  return needs;
}

void refuse_patches(const ViewNeeds& needs) {
  if (needs.dense)
    user_error(
        "--slots changes the embeddings of whole images, not those of patches: measure segmentation without it");
}

TowerFeatures of_chosen(TowerFeatures features, const at::Tensor& chosen, const ViewNeeds& needs) {
  if (features.global.size(0) == 0) return features;
  features.global = metrics::slot_embeddings(features.slots, chosen);
  if (!needs.slots) features.slots = at::Tensor();
  return features;
}

}  // namespace

std::int64_t count_slots(const Embedder& model, const std::string& option) {
  if (!model.takes_texts())
    user_error(option, ": slots of images are compared with those of texts, but this model has no text tower");
  const config::Size size = model.preprocessing().image_size;
  const at::Tensor image = model.encode_images(at::zeros({1, 3, size.height, size.width}, at::kByte), with_slots({})).slots;
  const at::Tensor text = model.encode_texts({"a"}, with_slots({})).slots;
  if (!image.defined() || !text.defined())
    user_error(option, ": the read-out of this model's ", image.defined() ? "text" : "image",
               " tower outputs no slots: take a model whose towers both read out by slots, as sparo does");
  if (image.sizes() != text.sizes())
    user_error(option, ": this model's towers output different slots, ", image.size(1), " of width ", image.size(2),
               " for images and ", text.size(1), " of width ", text.size(2), " for texts");
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

MaskEmbedder::MaskEmbedder(const Embedder& model, at::Tensor weights, std::string path)
    : EmbedderView(model), weights_(std::move(weights)), path_(std::move(path)) {}

TowerFeatures MaskEmbedder::encode_images(const TowerInput& images, const ViewNeeds& needs) const {
  refuse_patches(needs);
  TowerFeatures features = EmbedderView::encode_images(images, needs);
  const std::int64_t width = features.global.size(1), parts = weights_.size(0);
  if (parts == 0 || width % parts != 0)
    user_error("--slots ", path_, ": a mask of ", parts, " weights does not fit this model's embedding of ", width,
               " dimensions");
  features.global = features.global * weights_.to(features.global.scalar_type()).repeat_interleave(width / parts);
  return features;
}

}  // namespace tessera
