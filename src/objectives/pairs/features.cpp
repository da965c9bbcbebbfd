#include "src/objectives/pairs/features.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <tessera/base/error.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

constexpr std::int64_t kAny = -1;

// Checks tensors one after another; the first one determines the batch size and the device.
class Checker {
 public:
  Checker(const char* objective, const PairWants& wants)
      : objective_(objective), same_width_(wants.same_width), bfloat16_tokens_(wants.bfloat16_tokens) {}

  // `middle` is the letter of the token dimension, or nullptr for a global embedding.
  at::Tensor embedding(const at::Tensor& tensor, const char* name, const char* middle) {
    check_present(tensor, name);
    const std::int64_t dims = middle == nullptr ? 2 : 3;
    TORCH_CHECK(tensor.is_floating_point(), objective_, ": ", name, " must hold floating-point numbers, got ",
                tensor.scalar_type());
    const bool fits = tensor.dim() == dims && (batch_ == kAny || tensor.size(0) == batch_) &&
                      (width_ == kAny || !same_width_ || tensor.size(-1) == width_);
    TORCH_CHECK(fits, objective_, ": ", name, " must be ", expected(middle), ", got ", tensor.sizes());
    TORCH_CHECK(tensor.size(0) > 0, objective_, ": ", name, " holds no pair, got ", tensor.sizes());
    batch_ = tensor.size(0);
    width_ = tensor.size(-1);
    const bool stays = bfloat16_tokens_ && middle != nullptr && tensor.scalar_type() == at::kBFloat16;
    return stays ? tensor : to_compute(tensor);
  }

  void mask(const at::Tensor& tensor, const char* name, const at::Tensor& tokens) {
    check_present(tensor, name);
    TORCH_CHECK(tensor.sizes() == tokens.sizes().slice(0, 2), objective_, ": ", name,
                " must be [B, L] = ", tokens.sizes().slice(0, 2), ", got ", tensor.sizes());
    TORCH_CHECK(tensor.scalar_type() == at::kBool, objective_, ": ", name, " must be bool, got ", tensor.scalar_type());
  }

  void presence(const at::Tensor& tensor) {
    TORCH_CHECK(tensor.dim() == 1 && tensor.size(0) == batch_ && tensor.scalar_type() == at::kBool, objective_,
                ": present must be [B] = [", batch_, "] bool, got ", tensor.sizes(), " ", tensor.scalar_type());
  }

  at::Tensor image_global(const TowerFeatures& image) { return embedding(image.global, "image_global", nullptr); }

  // All patches of a batch are taken as real, so images must have the same number of patches.
  at::Tensor image_tokens(const TowerFeatures& image) {
    if (image.grids.defined())
      user_error("objective ", objective_, " needs the same number of patches in all images, but with "
                 "model.preprocessing.resize_mode: naflex the number varies: set another resize_mode, or use an objective on "
                 "embeddings of whole images (clip, siglip)");
    const at::Tensor tokens = embedding(image.tokens, "image_tokens", "P");
    TORCH_CHECK(tokens.size(1) > 0, objective_, ": image_tokens must hold at least one patch, got ", tokens.sizes());
    return tokens;
  }

  std::int64_t batch() const { return batch_; }
  at::TensorOptions bools() const { return at::TensorOptions().dtype(at::kBool).device(*device_); }

 private:
  void check_present(const at::Tensor& tensor, const char* name) {
    if (!tensor.defined()) refuse_missing_feature(objective_, name);
    if (!device_) device_ = tensor.device();
    TORCH_CHECK(tensor.device() == *device_, objective_, ": ", name, " is on ", tensor.device(), ", other features on ",
                *device_);
  }

  std::string expected(const char* middle) const {
    const std::string letters = middle == nullptr ? "[B, D]" : std::string("[B, ") + middle + ", D]";
    if (batch_ == kAny) return letters;
    const std::string inner = middle == nullptr ? ", " : std::string(", ") + middle + ", ";
    return letters + " = [" + std::to_string(batch_) + inner + (same_width_ ? std::to_string(width_) : "D") + "]";
  }

  const char* objective_;
  bool same_width_, bfloat16_tokens_;
  std::int64_t batch_ = kAny;
  std::int64_t width_ = kAny;
  std::optional<at::Device> device_;
};

// Sets the rows of absent pairs to 0.
void clear_absent(PairFeatures& pairs) {
  const at::Tensor absent = ~pairs.present;
  for (at::Tensor* tensor : {&pairs.image_global, &pairs.text_global})
    if (tensor->defined()) *tensor = tensor->masked_fill(absent.unsqueeze(1), 0.0);
  if (pairs.image_tokens.defined()) pairs.image_tokens = pairs.image_tokens.masked_fill(absent.view({-1, 1, 1}), 0.0);
  if (pairs.text_mask.defined()) pairs.text_mask = pairs.text_mask & pairs.present.unsqueeze(1);
}

}  // namespace

// A missing feature is a UserError and not a c10::Error, because settings decide what a tower outputs.
void refuse_missing_feature(const char* objective, const std::string& name) {
  const bool image = name.starts_with("image");
  const char* tower = image ? "image" : "text";
  if (name.ends_with("global"))
    user_error("objective ", objective, " needs one embedding per ", tower, " (", name, "), which the ", tower,
               " tower does not output: set model.", tower,
               ".readout to gap or another that does (none is only for objectives that read tokens)");
  user_error("objective ", objective, " needs ", name, ", which the ", tower, " tower does not output: set another model.",
             tower, ".encoder");
}

at::ScalarType PairFeatures::dtype() const {
  for (const at::Tensor* tensor : {&image_global, &text_global, &image_tokens, &text_tokens})
    if (tensor->defined()) return tensor->scalar_type();
  return at::kFloat;
}

PairFeatures pair_features(const Features& features, const char* objective, const ContrastSettings& settings,
                           const PairWants& wants, const ProcessGroup& group) {
  const TowerFeatures& image = features.image(settings.image_view);
  const TowerFeatures& text = features.text(settings.text_view);
  Checker checker(objective, wants);
  PairFeatures out;
  if (wants.image_global) out.image_global = checker.image_global(image);
  if (wants.text_global) out.text_global = checker.embedding(text.global, "text_global", nullptr);
  if (wants.image_tokens) out.image_tokens = checker.image_tokens(image);
  if (wants.text_tokens) {
    out.text_tokens = checker.embedding(text.tokens, "text_tokens", "L");
    out.text_mask = text.mask.defined() ? text.mask : at::ones(out.text_tokens.sizes().slice(0, 2), checker.bools());
    checker.mask(out.text_mask, "text_mask", out.text_tokens);
  }

  out.relation.present = at::ones({checker.batch() * group.size(), 1}, checker.bools());
  if (settings.skip_absent) {
    at::Tensor present = at::ones({checker.batch()}, checker.bools());
    for (const TowerFeatures* view : {&image, &text})
      if (view->present.defined()) {
        checker.presence(view->present);
        present = present & view->present;
      }
    const at::Tensor all = group.all_gather(present);
    // Usually all pairs are present, and nothing needs masking. A GPU always masks, because the check would cost more than it saves.
    if (!all.is_cpu() || !all.all().item<bool>()) {
      out.present = present;
      out.relation = PairRelation::of_pairs(all);
      clear_absent(out);
    }
  }
  out.relation.smoothing = settings.label_smoothing;
  add_duplicates(out.relation, duplicates_named(settings.mask_duplicates ? "masked" : "negative"),
                 features.duplicates.image_group, features.duplicates.caption_group, objective, group);
  // Uses masked_fill instead of a product, because padding may hold NaN.
  if (wants.text_tokens) out.text_tokens = out.text_tokens.masked_fill(~out.text_mask.unsqueeze(-1), 0.0);
  return out;
}

PairFeatures caption_features(const Features& features, const char* objective, const CaptionSettings& settings,
                              const PairWants& wants, const ProcessGroup& group) {
  const TowerFeatures &image = features.image(settings.image_view), &text = features.text(settings.text_view);
  const bool one_caption = text.global.defined() && text.global.dim() == 2;
  Checker checker(objective, wants);
  PairFeatures out;
  out.text_global = checker.embedding(one_caption ? text.global.unsqueeze(1) : text.global, "text_global", "K");
  TORCH_CHECK(out.text_global.size(1) > 0, objective, ": text_global must hold a caption, got ",
              out.text_global.sizes());
  if (wants.image_global) out.image_global = checker.image_global(image);
  if (wants.image_tokens) out.image_tokens = checker.image_tokens(image);
  const at::IntArrayRef slots = out.text_global.sizes().slice(0, 2);
  out.present = text.present.defined() ? text.present.view(slots) : at::ones(slots, checker.bools());
  TORCH_CHECK(out.present.scalar_type() == at::kBool, objective, ": present must be bool, got ",
              out.present.scalar_type());
  out.text_global = out.text_global.masked_fill(out.present.logical_not().unsqueeze(2), 0.0);

  PairRelation& relation = out.relation;
  relation.present = group.all_gather(out.present);
  relation.some_absent = !relation.present.is_cpu() || !relation.present.all().item<bool>();
  const DuplicateGroups& groups = features.duplicates;
  add_duplicates(relation, duplicates_named(settings.duplicates), groups.image_group,
                 one_caption ? groups.caption_group : groups.captions_group, objective, group);
  return out;
}

at::Tensor image_embeddings(const TowerFeatures& image, const char* objective, const PairFeatures& pairs) {
  Checker checker(objective, {});
  checker.embedding(pairs.text_global, "text_global", pairs.text_global.dim() == 2 ? nullptr : "K");
  return checker.image_global(image);
}

}  // namespace tessera
