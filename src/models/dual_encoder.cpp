#include <algorithm>
#include <iterator>
#include <set>
#include <vector>

#include <ATen/ATen.h>

#include "src/base/printable.h"
#include "src/models/attention.h"
#include "src/models/batch_norm.h"
#include "src/models/per_sample_rng.h"
#include "src/models/position_embedding.h"
#include "src/models/room.h"
#include <tessera/base/text.h>
#include <tessera/models/dual_encoder.h>

namespace tessera {
namespace {

constexpr std::string_view kImagePrefix = "visual.";
constexpr std::string_view kCustomTextPrefix = "text.";  // OpenCLIP's CustomTextCLIP

/// Returns a tensor [3, 1, 1], which broadcasts over images.
at::Tensor channel_values(const std::array<double, 3>& values) {
  return at::tensor(at::ArrayRef<double>(values), at::kFloat).view({3, 1, 1});
}

std::string shape_text(const at::Tensor& tensor) {
  return concat(tensor.sizes());
}

/// Returns true for tensors that may be in a file but not in the model, or in the model but not in a file: counters,
/// and the token for hidden patches, which only models trained with hidden patches have.
bool is_optional(const std::string& name) {
  return name.ends_with("num_batches_tracked") || name == "visual.mask_token";
}

/// Marks all tokens of missing images as padding. Regions and texts do not need this, because their encoders apply the
/// masks themselves.
void hide_missing_images(TowerFeatures& features) {
  for (at::Tensor* tokens : {&features.tokens, &features.encoder_tokens, &features.dense}) {
    if (!tokens->defined()) continue;
    const at::Tensor there = features.present.unsqueeze(1).expand({-1, tokens->size(1)});
    features.mask = features.mask.defined() ? features.mask & there : there;
    *tokens = zero_padding(*tokens, features.mask);
  }
}

/// Checks that both towers have the same number of slots and the same slot width. SPARO compares slot by slot, so equal total widths are
/// not enough: 64 slots of width 64 cannot be compared with 32 slots of width 128.
void check_slots_agree(const ModelSettings& model, const std::string& path) {
  if (!model.text || model.image.readout.name != "sparo" || model.text->readout.name != "sparo") return;
  const auto number = [](const TowerSettings& tower, const char* key) {
    return config::Value<std::int64_t>::read(*tower.readout.settings.find(key), key, 0);
  };
  const std::int64_t ours = number(model.image, "slots"), width = number(model.image, "slot_width");
  const std::int64_t theirs = number(*model.text, "slots"), their_width = number(*model.text, "slot_width");
  if (ours != theirs || width != their_width)
    user_error(path, ": the image tower's read-out gives ", ours, " slots of ", width, ", the text tower's ", theirs, " of ", their_width,
               ": make slots and slot_width of both sparo read-outs equal");
}

std::map<std::string, at::Tensor> without_text_prefix(const std::map<std::string, at::Tensor>& tensors) {
  std::map<std::string, at::Tensor> out;
  for (const auto& [name, tensor] : tensors)
    out[name.starts_with(kCustomTextPrefix) ? name.substr(kCustomTextPrefix.size()) : name] = tensor;
  return out;
}

void add_input_ids(const TowerInput& view, TowerFeatures& out) {
  out.input.ids = view.ids;
  out.input.mask = view.mask;
}

/// Returns the features of a text view that no tower encodes. They contain only the ids.
TowerFeatures ids_alone(const TowerInput& view) {
  TowerFeatures out;
  add_input_ids(view, out);
  if (view.mask.defined()) out.present = view.mask.any(-1);
  return out;
}

// Returns a view's tensors, except for those that tell real entries from padding.
std::vector<at::Tensor> values_of(TowerInput view) {
  view.mask = view.lengths = view.boxes.mask = at::Tensor();
  std::vector<at::Tensor> out;
  for_each_tensor(view, [&](const at::Tensor& tensor) { out.push_back(tensor); });
  return out;
}

// Returns true if one pass of the tower can encode both views. For this, both must have the same kind, row shape and needs. For texts, the
// need `optional` may differ, because it matters only for images (hide_missing_images()).
bool fit_together(const TowerInput& a, const ViewNeeds& a_needs, const TowerInput& b, ViewNeeds b_needs) {
  if (!a.of_images()) b_needs.optional = a_needs.optional;
  return a_needs == b_needs && std::ranges::equal(values_of(a), values_of(b), [](const at::Tensor& ours, const at::Tensor& theirs) {
           if (!ours.defined() || !theirs.defined()) return ours.defined() == theirs.defined();
           return ours.sizes() == theirs.sizes() && ours.scalar_type() == theirs.scalar_type();
         });
}

// Concatenates views of one shape along the batch. If only some views have a mask, all entries of the other views count as real.
TowerInput stacked(std::vector<TowerInput> views) {
  const auto masked = std::ranges::find_if(views, [](const TowerInput& view) { return view.mask.defined(); });
  const bool counted = masked != views.end() && views.front().ids.defined() && std::ranges::all_of(views, [](const TowerInput& view) {
                         return view.lengths.defined() || !view.mask.defined();
                       });
  const at::Tensor all = masked != views.end() ? at::ones_like(masked->mask) : at::Tensor();
  for (TowerInput& view : views) {
    if (!counted)
      view.lengths.reset();
    else if (!view.lengths.defined())
      view.lengths = at::full({view.ids.size(0)}, view.ids.size(1), at::kLong);
    if (!view.mask.defined()) view.mask = all;
  }
  std::vector<Features> parts(views.size());
  for (std::size_t i = 0; i < views.size(); ++i) parts[i].images["view"].input = std::move(views[i]);
  return joined(parts).image("view").input;
}

/// Builds both towers.
struct Towers {
  Towers(const ModelSettings& settings, SharedParameters& shared, const std::string& path) {
    if (settings.text) text = std::make_shared<Tower>(*settings.text, Modality::text, shared, path + ".text");
    image = std::make_shared<Tower>(settings.image, Modality::image, shared, path + ".image");
  }
  std::shared_ptr<Tower> text, image;  // text is null if there is no text tower
};

}  // namespace

/// Returns normalized pixels in the type of the weights, which Python may have changed (half(), double()).
at::Tensor DualEncoder::normalize(const at::Tensor& pixels) const {
  if (!pixels.defined()) return pixels;
  if (pixels.is_floating_point()) return pixels.to(weight_.scalar_type());
  TORCH_CHECK(pixels.scalar_type() == at::kByte, "encode_image: pixels must be uint8 or floating, got ",
              pixels.scalar_type());
  // Python moves only the towers' tensors to another device.
  const auto moved = [&](const at::Tensor& values) { return values.to(pixels.device(), at::kFloat); };
  return pixels.to(at::kFloat).div_(255.0).sub_(moved(mean_)).div_(moved(deviation_)).to(weight_.scalar_type());
}

/// Normalizes patches [B, T, 3 * h * w]. The pixels of a channel are contiguous within a patch.
at::Tensor DualEncoder::normalize_patches(const at::Tensor& patches) const {
  if (!patches.defined()) return patches;
  TORCH_CHECK(patches.dim() == 3 && patches.size(2) % 3 == 0, "encode_image: patches must be [B, T, 3 * h * w], got ",
              patches.sizes());
  return normalize(patches.unflatten(2, {3, 1, patches.size(2) / 3})).flatten(2);
}

/// Encodes a text view. In a view with K captions per image, each caption is a row of its own for the tower.
TowerFeatures DualEncoder::encode_captions(Tower& tower, const TowerInput& view, const ViewNeeds& needs) const {
  const std::int64_t images = view.ids.size(0), captions = view.ids.size(1);
  const auto flat = [](const at::Tensor& tensor) { return tensor.flatten(0, 1); };
  const RowRngScope keyed(row_keys_of_parts(images, captions, view.ids.device()));
  ViewNeeds of_each = needs;
  of_each.optional = true;  // an image may have fewer captions
  TowerFeatures out = encode(tower, map_tensors(view, flat), of_each);
  out = map_tensors(out, [&](const at::Tensor& tensor) { return tensor.unflatten(0, {images, captions}); });
  out.present = view.mask.defined() ? view.mask.any(2)
                                    : at::ones({images, captions}, view.ids.options().dtype(at::kBool));
  return out;
}

TowerFeatures DualEncoder::encode(Tower& tower, const TowerInput& view, const ViewNeeds& needs) const {
  if (view.ids.defined() && view.ids.dim() == 3) return encode_captions(tower, view, needs);
  TowerInput input = view;
  input.pixels = normalize(view.pixels);
  input.patches = normalize_patches(view.patches);
  if (view.regions.defined() && view.regions.size(2) == 0)  // no sample of the batch has regions
    input.regions = at::zeros({view.regions.size(0), view.regions.size(1), tower.encoder().region_width()}, view.regions.options());
  const RealRows present(needs.optional && view.mask.defined() ? view.mask.any(1) : at::Tensor());
  TowerFeatures out = tower.forward(input, needs);
  if (settings_.unit_length && out.global.defined()) {
    constexpr double kLeast = 1e-12;
    out.global = at_least_float(out.global);
    out.global = out.global / out.global.norm(2, {-1}, /*keepdim=*/true).clamp_min(kLeast);
  }
  if (needs.optional && view.mask.defined()) {
    out.present = view.mask.any(1);
    if (view.of_images()) hide_missing_images(out);
  }
  if (needs.input_ids) add_input_ids(view, out);
  return out;
}

std::map<std::string, TowerFeatures> DualEncoder::encode_views(
    Tower& tower, const std::map<std::string, TowerInput>& views, const std::map<std::string, ViewNeeds>& needs) const {
  const bool apart = mixes_rows(tower);
  std::vector<std::pair<std::string, ViewNeeds>> waiting;
  std::map<std::string, TowerFeatures> out;
  for (const auto& view : needs) {
    const auto& [name, need] = view;
    if (!need.student && !need.input_ids) continue;
    TORCH_CHECK(views.contains(name), "the batch has no view named ", name);
    if (need.student)
      waiting.push_back(view);
    else
      out[name] = ids_alone(views.at(name));
  }
  while (!waiting.empty()) {
    const auto [first, need] = waiting.front();
    std::vector<std::string> names;
    std::vector<TowerInput> inputs;
    ViewNeeds joined = need;
    std::erase_if(waiting, [&](const auto& other) {
      const TowerInput& input = views.at(other.first);
      const bool joins = other.first == first || (!apart && fit_together(views.at(first), need, input, other.second));
      if (joins) {
        names.push_back(other.first);
        inputs.push_back(input);
        joined.optional |= other.second.optional;
      }
      return joins;
    });
    const RowRngScope rows(row_keys_of_views(names));
    if (names.size() == 1) {
      out[first] = encode(tower, inputs[0], need);
      continue;
    }
    const TowerFeatures all = encode(tower, stacked(inputs), joined);
    const std::int64_t batch = inputs[0].values().size(0);
    for (std::size_t i = 0; i < names.size(); ++i) {
      TowerFeatures& view = out[names[i]];
      view = map_tensors(
          all, [&](const at::Tensor& tensor) { return tensor.narrow(0, static_cast<std::int64_t>(i) * batch, batch); });
      if (!needs.at(names[i]).optional && !holds_several_texts(names[i])) view.present = at::Tensor();
    }
  }
  return out;
}

namespace {

// If resize_mode is naflex, sets preprocessing.patch_size to the image encoder's patch size, because the preprocessing then cuts the images
// into patches.
void follow_patch_size(ModelSettings& settings, const std::string& path) {
  Preprocessing& preprocessing = settings.preprocessing;
  if (!keeps_shapes(preprocessing)) return;
  const config::Node* node = settings.image.encoder.settings.find("patch_size");
  if (node == nullptr)
    user_error(path, ".preprocessing.resize_mode: naflex gives patches of images, which the image encoder ",
               settings.image.encoder.name, " does not take: set ", path, ".image.encoder.name to vit, or another resize_mode");
  const auto size = config::Value<config::Size>::read(*node, path + ".image.encoder.patch_size", {});
  if (preprocessing.patch_size.value_or(size) != size)
    user_error(path, ".preprocessing.patch_size is ", preprocessing.patch_size->height, " x ", preprocessing.patch_size->width,
               ", but ", path, ".image.encoder.patch_size is ", size.height, " x ", size.width,
               ": leave out the former, or make them equal");
  preprocessing.patch_size = size;
}

}  // namespace

ModelSettings resolve(const ModelSettings& given, const std::string& path) {
  ModelSettings settings = given;
  const config::Size size = settings.preprocessing.image_size;
  constexpr std::int64_t kMostPixels = 16384;
  if (std::max(size.height, size.width) > kMostPixels)
    user_error(path, ".preprocessing.image_size is ", size.height, " x ", size.width, ": images may have at most ", kMostPixels, " pixels a side");
  const TowerSettings named =
      resolve(given.image, path + ".image");  // checks the names before anything is looked up by name
  if (named.encoder.settings.find("image_size") != nullptr &&
      given.image.encoder.settings.find("image_size") == nullptr)
    settings.image.encoder.settings.set("image_size", config::Value<config::Size>::dump(size));
  settings.image = resolve(settings.image, path + ".image");
  if (settings.text) settings.text = resolve(*settings.text, path + ".text");
  if (const config::Node* node = settings.image.encoder.settings.find("image_size")) {
    const auto encoder_size = config::Value<config::Size>::read(*node, path + ".image.encoder.image_size", {});
    if (encoder_size != size)
      user_error(path, ".image.encoder.image_size is ", encoder_size.height, " x ", encoder_size.width, ", but ", path,
                 ".preprocessing.image_size is ", size.height, " x ", size.width,
                 ": give only the latter, or make them equal");
  }
  follow_patch_size(settings, path);
  return settings;
}

ModelSettings with_image_size(ModelSettings settings, config::Size size) {
  config::Node& encoder = settings.image.encoder.settings;
  if (encoder.find("image_size") != nullptr) encoder.set("image_size", config::Value<config::Size>::dump(size));
  settings.preprocessing.image_size = size;
  return settings;
}

DualEncoder::DualEncoder(const ModelSettings& settings, const std::string& path) : settings_(resolve(settings, path)) {
  config::Node sizes = config::dump(settings_);
  sizes.erase("preprocessing");
  check_room("weights", path, sizes, [&] {
    SharedParameters shared;
    const Towers unfilled(settings_, shared, path);
    std::vector<at::Tensor> tensors = tensors_of(*unfilled.image);
    if (!unfilled.text) return tensors;
    for (const at::Tensor& tensor : tensors_of(*unfilled.text)) tensors.push_back(tensor);
    return tensors;
  });
  const Towers towers(settings_, shared_, path);
  image_ = towers.image;
  text_ = towers.text;
  if (text_) register_module("text", text_);
  register_module("image", image_);
  check_slots_agree(settings_, path);
  if (text_ && image_->embed_dim() != text_->embed_dim())
    user_error(path, ": the image tower's embedding is ", image_->embed_dim(), " wide, the text tower's ",
               text_->embed_dim(), ": make them equal (projection.embed_dim)");
  if (keeps_shapes(settings_.preprocessing)) image_->encoder().patch_of_sequences();
  weight_ = image_->parameters().front();
  mean_ = register_buffer("pixel_mean", channel_values(settings_.preprocessing.mean));
  deviation_ = register_buffer("pixel_std", channel_values(settings_.preprocessing.std));
}

TowerFeatures DualEncoder::encode_image(const TowerInput& view, const ViewNeeds& needs) {
  return encode(*image_, view, needs);
}

TowerFeatures DualEncoder::encode_image(const at::Tensor& pixels, const ViewNeeds& needs) {
  return encode_image(image_input(pixels), needs);
}

EncodedImages DualEncoder::encode_images(const at::Tensor& pixels) {
  const Encoded encoded = image_->encoder().encode(image_input(normalize(pixels)));
  TORCH_CHECK(!encoded.mask.defined(), "encode_pictures: the image encoder's tokens have padding");
  return {encoded.tokens, encoded.class_token, encoded.attention};
}

TowerFeatures DualEncoder::encode_text(const TowerInput& view, const ViewNeeds& needs) {
  return encode(text_tower(), view, needs);
}

Features DualEncoder::forward(const Batch& batch, const Needs& needs) {
  Features features;
  features.images = encode_views(*image_, batch.images, needs.images);
  if (!needs.texts.empty()) features.texts = encode_views(text_tower(), batch.texts, needs.texts);
  features.duplicates = batch.duplicates;
  features.extras = batch.extras;
  add_taught(batch, needs, features);
  return features;
}

Tower& DualEncoder::text_tower() const {
  TORCH_CHECK(text_ != nullptr, "this model has no text tower (model.text is null)");
  return *text_;
}

bool is_image_parameter(const std::string& name) {
  return name.starts_with(kImagePrefix);
}

std::map<std::string, at::Tensor> DualEncoder::state_dict() const {
  std::map<std::string, at::Tensor> state;
  if (text_) state = text_->state_dict();
  for (const auto& [name, tensor] : image_->state_dict()) state[std::string(kImagePrefix) + name] = tensor;
  return state;
}

std::map<std::string, std::int64_t> DualEncoder::blocks_behind() const {
  std::map<std::string, std::int64_t> out;
  if (text_) out = text_->blocks_behind();
  for (const auto& [name, blocks] : image_->blocks_behind()) out[std::string(kImagePrefix) + name] = blocks;
  return out;
}

namespace {

using NamedTensors = std::map<std::string, at::Tensor>;

/// If a file has fewer than half of the model's tensors, returns a text that names some of the file's tensors.
/// Otherwise returns an empty string.
std::string names_found(const NamedTensors& stored, const NamedTensors& wanted) {
  const auto known = std::count_if(wanted.begin(), wanted.end(), [&](const auto& item) { return stored.contains(item.first); });
  if (2 * known >= std::ssize(wanted)) return "";
  std::vector<std::string> names;
  for (auto item = stored.begin(); item != stored.end() && names.size() < 4; ++item) names.push_back(printable(item->first, 60));
  return concat("; it has ", stored.size(), stored.size() == 1 ? " tensor" : " tensors",
                names.empty() ? "" : names.size() < stored.size() ? ", such as " : ": ", join_names(names));
}

void warn_of_non_finite(const NamedTensors& tensors, const std::string& origin) {
  std::int64_t count = 0;
  std::string first;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.is_floating_point() || at::isfinite(tensor).all().item<bool>()) continue;
    if (++count == 1) first = name;
  }
  if (count > 0)
    log::warning(origin, ": ", count, count == 1 ? " tensor holds" : " tensors hold",
                 " NaN or infinite values: ", printable(first), count > 1 ? " is the first" : "");
}

std::string size_text(config::Size size) {
  return concat(size.height, " x ", size.width);
}

/// Describes how learned image positions were resampled to the table `own`, which has the model's grid. The grid of the file's table
/// `stored` is square, since no other is resampled.
std::string resampled_image(const at::Tensor& stored, const at::Tensor& own, config::Size grid, config::Size pixels) {
  const auto rows = [](const at::Tensor& table) { return table.numel() / table.size(-1); };
  const config::Size old = square_grid(rows(stored) - rows(own) + grid.height * grid.width);
  const config::Size old_pixels(pixels.height / grid.height * old.height, pixels.width / grid.width * old.width);
  return concat("image positions: the file's ", size_text(old), " (images of ", size_text(old_pixels), " pixels) are resampled to ",
                size_text(grid), " (", size_text(pixels), " pixels)");
}

/// Does the same for text positions. See the setting kept_positions.
std::string resampled_text(const at::Tensor& stored, const at::Tensor& own, const config::Node* kept) {
  const bool interpolated = kept == nullptr || kept->is_null(), cut = own.size(0) < stored.size(0);
  return concat("text positions: the file's ", stored.size(0), " are ", interpolated ? "interpolated" : cut ? "cut" : "stretched", " to ",
                own.size(0), !interpolated && !cut ? concat(", the first ", kept->text(), " kept") : "");
}

}  // namespace

void DualEncoder::load_state(const std::map<std::string, at::Tensor>& tensors, const std::string& origin, log::Level resampling) {
  const std::map<std::string, at::Tensor> stored = without_text_prefix(tensors);
  const std::map<std::string, at::Tensor> state = state_dict();
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  std::vector<std::string> resampled;
  for (const auto& [name, own] : state) {
    const auto found = stored.find(name);
    if (found == stored.end()) {
      if (is_optional(name)) continue;
      user_error(origin, ": tensor ", name, " ", shape_text(own), " is missing: the file is not of this architecture",
                 names_found(stored, state));
    }
    const at::Tensor& given = found->second;
    const at::Tensor value = is_image_parameter(name) ? image_->adapt_weight(name.substr(kImagePrefix.size()), given)
                             : text_                  ? text_->adapt_weight(name, given)
                                                      : given;
    if (value.sizes() != own.sizes())
      user_error(origin, ": tensor ", name, " is ", shape_text(found->second), ", but the model's settings make it ",
                 shape_text(own));
    copies.emplace_back(own, value);
    if (value.sizes() == found->second.sizes()) continue;
    resampled.push_back(is_image_parameter(name)
                            ? resampled_image(found->second, own, grid(), settings().preprocessing.image_size)
                            : resampled_text(found->second, own, settings().text->encoder.settings.find("kept_positions")));
  }
  const std::set<std::string> elsewhere = {"logit_scale", "logit_bias"};  // parameters of the objective
  for (const auto& [name, tensor] : stored)
    if (!state.contains(name) && !elsewhere.contains(name) && !is_optional(name))
      user_error(origin, ": tensor ", name, " ", shape_text(tensor),
                 " is left over: the model's settings have no such part");
  warn_of_non_finite(stored, origin);
  for (const std::string& line : resampled) log::write(resampling, concat(origin, ": ", line));
  const at::NoGradGuard guard;
  for (auto& [own, value] : copies) own.copy_(value);
}

}  // namespace tessera
