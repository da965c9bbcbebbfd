#include <set>
#include <vector>

#include <ATen/ATen.h>

#include <tessera/base/text.h>
#include <tessera/models/dual_encoder.h>
#include <tessera/models/registry.h>

namespace tessera {
namespace {

constexpr std::string_view image_prefix = "visual.";
constexpr std::string_view custom_text_prefix = "text.";  // OpenCLIP's CustomTextCLIP

/// [3, 1, 1], so that it broadcasts over pictures.
at::Tensor channel_values(const std::array<double, 3>& values) {
  return at::tensor(at::ArrayRef<double>(values), at::kFloat).view({3, 1, 1});
}

std::string shape_text(const at::Tensor& tensor) {
  return concat(tensor.sizes());
}

/// Counters that may be absent from a file or present in it.
bool is_optional(const std::string& name) {
  return name.ends_with("num_batches_tracked");
}

std::map<std::string, at::Tensor> without_text_prefix(const std::map<std::string, at::Tensor>& tensors) {
  std::map<std::string, at::Tensor> out;
  for (const auto& [name, tensor] : tensors)
    out[name.starts_with(custom_text_prefix) ? name.substr(custom_text_prefix.size()) : name] = tensor;
  return out;
}

}  // namespace

struct DualEncoder::Impl {
  ModelSettings settings;
  std::shared_ptr<Tower> image;
  std::shared_ptr<Tower> text;
  at::Tensor mean;
  at::Tensor deviation;

  at::Tensor normalize(const at::Tensor& pixels) const {
    if (pixels.is_floating_point()) return pixels;
    TORCH_CHECK(pixels.scalar_type() == at::kByte, "encode_image: pixels must be uint8 or floating, got ",
                pixels.scalar_type());
    return (pixels.to(at::kFloat) / 255.0 - mean.to(at::kFloat)) / deviation.to(at::kFloat);
  }

  at::Tensor adapt_weight(const std::string& name, const at::Tensor& stored) const {
    return name.starts_with(image_prefix) ? image->adapt_weight(name.substr(image_prefix.size()), stored)
                                          : text->adapt_weight(name, stored);
  }
};

ModelSettings resolve(const ModelSettings& given, const std::string& path) {
  ModelSettings settings = given;
  const config::Size size = settings.preprocessing.image_size;
  const TowerSettings named =
      resolve(given.image, path + ".image");  // checks the names before anything is looked up by them
  if (named.encoder.settings.find("image_size") != nullptr &&
      given.image.encoder.settings.find("image_size") == nullptr)
    settings.image.encoder.settings.set("image_size", config::Value<config::Size>::dump(size));
  settings.image = resolve(settings.image, path + ".image");
  settings.text = resolve(settings.text, path + ".text");
  if (const config::Node* node = settings.image.encoder.settings.find("image_size")) {
    const auto encoder_size = config::Value<config::Size>::read(*node, path + ".image.encoder.image_size", {});
    if (encoder_size != size)
      user_error(path, ".image.encoder.image_size is ", encoder_size.height, " x ", encoder_size.width, ", but ", path,
                 ".preprocessing.image_size is ", size.height, " x ", size.width,
                 ": give only the latter, or make them equal");
  }
  return settings;
}

DualEncoder::DualEncoder(const ModelSettings& settings, const std::string& path) : impl_(std::make_shared<Impl>()) {
  impl_->settings = resolve(settings, path);
  const ModelSettings& full = impl_->settings;
  impl_->image = register_module("image", std::make_shared<Tower>(full.image, Modality::image, path + ".image"));
  impl_->text = register_module("text", std::make_shared<Tower>(full.text, Modality::text, path + ".text"));
  const std::int64_t image_dim = impl_->image->embed_dim(), text_dim = impl_->text->embed_dim();
  if (image_dim != text_dim)
    user_error(path, ": the image tower's embedding is ", image_dim, " wide, the text tower's ", text_dim,
               ": make them equal (projection.embed_dim)");
  impl_->mean = register_buffer("pixel_mean", channel_values(full.preprocessing.mean));
  impl_->deviation = register_buffer("pixel_std", channel_values(full.preprocessing.std));
}

ImageFeatures DualEncoder::run_image_tower(const at::Tensor& pixels, bool tokens, bool dense) {
  const TowerOutput out = impl_->image->forward(impl_->normalize(pixels), {}, tokens, dense);
  return {out.global, out.tokens, out.mask, out.dense, out.slots, out.attention};
}

ImageFeatures DualEncoder::encode_image(const at::Tensor& pixels, bool tokens) {
  return run_image_tower(pixels, tokens, tokens);
}

TextFeatures DualEncoder::encode_text(const TextBatch& text, bool tokens) {
  const TowerOutput out = impl_->text->forward(text.ids, text.mask, tokens);
  return {out.global, out.tokens, text.mask, out.slots, out.attention};
}

Features DualEncoder::forward(const Batch& batch, const Needs& needs) {
  Features features;
  for (const std::string& view : needs.image_views) {
    const auto found = batch.images.find(view);
    TORCH_CHECK(found != batch.images.end(), "the batch has no image view named ", view);
    features.images[view] = run_image_tower(found->second, needs.image_tokens, /*dense=*/false);
  }
  for (const std::string& name : needs.texts) {
    const auto found = batch.texts.find(name);
    TORCH_CHECK(found != batch.texts.end(), "the batch has no text named ", name);
    features.texts[name] = encode_text(found->second, needs.text_tokens);
  }
  features.image_group = batch.image_group;
  features.caption_group = batch.caption_group;
  return features;
}

const ModelSettings& DualEncoder::settings() const {
  return impl_->settings;
}
std::int64_t DualEncoder::embed_dim() const {
  return impl_->image->embed_dim();
}
config::Size DualEncoder::grid() const {
  return impl_->image->encoder().grid();
}
Tower& DualEncoder::image_tower() {
  return *impl_->image;
}
Tower& DualEncoder::text_tower() {
  return *impl_->text;
}

std::map<std::string, at::Tensor> DualEncoder::state_dict() const {
  std::map<std::string, at::Tensor> state = impl_->text->state_dict();
  for (const auto& [name, tensor] : impl_->image->state_dict()) state[std::string(image_prefix) + name] = tensor;
  return state;
}

void DualEncoder::load_state(const std::map<std::string, at::Tensor>& tensors, const std::string& origin) {
  const std::map<std::string, at::Tensor> stored = without_text_prefix(tensors);
  const std::map<std::string, at::Tensor> state = state_dict();
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  for (const auto& [name, own] : state) {
    const auto found = stored.find(name);
    if (found == stored.end()) {
      if (is_optional(name)) continue;
      user_error(origin, ": tensor ", name, " ", shape_text(own), " is missing: the file is not of this architecture");
    }
    const at::Tensor value = impl_->adapt_weight(name, found->second);
    if (value.sizes() != own.sizes())
      user_error(origin, ": tensor ", name, " is ", shape_text(found->second), ", but the model's settings make it ",
                 shape_text(own));
    copies.emplace_back(own, value);
  }
  const std::set<std::string> elsewhere = {"logit_scale", "logit_bias"};  // parameters of the objective
  for (const auto& [name, tensor] : stored)
    if (!state.contains(name) && !elsewhere.contains(name) && !is_optional(name))
      user_error(origin, ": tensor ", name, " ", shape_text(tensor),
                 " is left over: the model's settings have no such part");
  const at::NoGradGuard guard;
  for (auto& [own, value] : copies) own.copy_(value);
}

}  // namespace tessera
