#include "src/objectives/common/caption_features.h"

#include <ATen/ATen.h>

#include "src/objectives/common/pair_features.h"
#include <tessera/ops/numeric.h>

namespace tessera {

at::Tensor image_feature(const at::Tensor& tensor, const char* objective, const char* name, const at::Tensor& text) {
  if (!tensor.defined()) refuse_missing_feature(objective, name);
  const bool tokens = std::string_view(name) == "image_tokens";
  TORCH_CHECK(tensor.is_floating_point() && tensor.dim() == (tokens ? 3 : 2) && tensor.size(0) == text.size(0) &&
                  tensor.size(-1) == text.size(-1) && tensor.size(1) > 0,
              objective, ": ", name, " must be floating ", tokens ? "[B, P, D]" : "[B, D]", " with B = ", text.size(0),
              " and D = ", text.size(-1), ", got ", tensor.scalar_type(), " ", tensor.sizes());
  TORCH_CHECK(tensor.device() == text.device(), objective, ": ", name, " is on ", tensor.device(),
              ", the captions' embeddings on ", text.device());
  return to_compute(tensor);
}

Needs CaptionSettings::needs(ViewNeeds image, ViewNeeds text) const {
  return {.images = {{image_view, image}}, .texts = {{text_view, text}}, .duplicates = duplicates != "negative"};
}

CaptionFeatures caption_features(const Features& features, const char* objective, const CaptionSettings& settings,
                                 const CaptionWants& wants, const ProcessGroup& group) {
  const TowerFeatures &image = features.image(settings.image_view), &text = features.text(settings.text_view);
  if (!text.global.defined()) refuse_missing_feature(objective, "text_global");
  const bool one_caption = text.global.dim() == 2;
  const at::Tensor embeddings = one_caption ? text.global.unsqueeze(1) : text.global;
  TORCH_CHECK(embeddings.dim() == 3 && embeddings.is_floating_point() && embeddings.numel() > 0, objective,
              ": text_global must be floating [B, K, D] or [B, D] and hold a caption, got ", text.global.scalar_type(),
              " ", text.global.sizes());
  CaptionFeatures out;
  if (wants.image_global) out.image_global = image_feature(image.global, objective, "image_global", embeddings);
  if (wants.image_tokens) refuse_own_shapes(objective, image);
  if (wants.image_tokens) out.image_tokens = image_feature(image.tokens, objective, "image_tokens", embeddings);
  const at::IntArrayRef slots = embeddings.sizes().slice(0, 2);
  out.present = text.present.defined() ? text.present.view(slots)
                                       : at::ones(slots, embeddings.options().dtype(at::kBool));
  TORCH_CHECK(out.present.scalar_type() == at::kBool, objective, ": present must be bool, got ",
              out.present.scalar_type());
  out.text_global = to_compute(embeddings).masked_fill(out.present.logical_not().unsqueeze(2), 0.0);
  const DuplicateGroups& groups = features.duplicates;
  const at::Tensor ids = !one_caption                    ? groups.captions_group
                         : groups.caption_group.defined() ? groups.caption_group.unsqueeze(1)
                                                          : groups.caption_group;
  out.relation = caption_relation(out.present, groups.image_group, ids, settings.duplicates, objective, group);
  return out;
}

}  // namespace tessera
