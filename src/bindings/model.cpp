// The operators model_*: a trained model with its own preprocessing and tokenizer. python/tessera/models.py wraps it.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "src/bindings/objective.h"
#include "src/bindings/tokenizer.h"
#include "src/data/image/patches.h"
#include "src/evaluation/checkpoint_pool.h"
#include "src/evaluation/token_spans.h"
#include "src/evaluation/word_maps.h"
#include "src/foreign/published_tokenizer.h"
#include "src/models/autocast.h"
#include "src/models/stored_form.h"
#include "src/training/run/run_loss.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/batch.h>
#include <tessera/data/image/transforms.h>
#include <tessera/data/source.h>
#include <tessera/evaluation/inference.h>
#include <tessera/objectives/contrastive_objective.h>

namespace tessera {
namespace {

/// Reduces values of more than 8 bits, [H, W, C], to 8 bits, as decode_image() does: gray by `gray_range`, others to their upper 8 bits.
at::Tensor to_levels(const at::Tensor& values, std::int64_t gray_range) {
  if (values.scalar_type() == at::kByte) return values;
  const at::Tensor wide = values.to(at::kLong);
  const auto [least, most] = at::aminmax(wide);
  if (least.item<std::int64_t>() < 0 || most.item<std::int64_t>() > 65535)
    user_error("an image of more than 8 bits must have values from 0 to 65535, but it has values from ",
               least.item<std::int64_t>(), " to ", most.item<std::int64_t>());
  if (values.size(2) > 1) return wide.bitwise_right_shift(8).to(at::kByte);
  return wide.mul(256).floor_divide(gray_range + 1).clamp_max(255).to(at::kByte);
}

/// Converts levels of 8 or 16 bits (as uint16 or int32), [H, W, C], to an Image. C is 1 (gray) or 3, plus 1 if there is alpha, which is
/// dropped. Throws UserError for other tensors, and for an int32 image without levels above 255, which are more likely levels of 8 bits.
Image image_of(const at::Tensor& pixels, std::int64_t gray_range) {
  const bool integers =
      pixels.scalar_type() == at::kByte || pixels.scalar_type() == at::kUInt16 || pixels.scalar_type() == at::kInt;
  if (!integers || pixels.dim() != 3 || pixels.size(2) < 1 || pixels.size(2) > 4 || pixels.numel() == 0)
    user_error("an image must be uint8 (or uint16) [height, width, 1 to 4], but it is ", toString(pixels.scalar_type()),
               " ", pixels.sizes(), ": convert other values to levels from 0 to 255");
  if (pixels.scalar_type() == at::kInt && pixels.max().item<std::int64_t>() <= 255)
    user_error("an int32 image has levels of 16 bits, but no level of this one is above 255: convert it to uint8, or to uint16 if it is dark");
  const at::Tensor levels = to_levels(pixels.cpu(), gray_range),
                   colors = levels.slice(2, 0, levels.size(2) < 3 ? 1 : 3);
  const at::Tensor rgb = colors.expand({-1, -1, 3}).contiguous();
  const auto* first = rgb.const_data_ptr<std::uint8_t>();
  return {rgb.size(0), rgb.size(1), std::vector<std::uint8_t>(first, first + rgb.numel())};
}

using Texts = c10::Dict<std::string, std::string>;

template <class Value>
c10::Dict<std::string, Value> dict_of(const std::map<std::string, Value>& values) {
  c10::Dict<std::string, Value> out;
  for (const auto& [name, value] : values) out.insert(name, value);
  return out;
}

template <class Value>
std::map<std::string, Value> map_of(const c10::Dict<std::string, Value>& values) {
  std::map<std::string, Value> out;
  for (const auto& item : values) out.emplace(item.key(), item.value());
  return out;
}

constexpr const char* kObjectivePrefix = "objective.";

ViewNeeds needs_of(const std::vector<std::string>& parts) {
  const auto has = [&](const char* name) { return contains(parts, name); };
  return {.tokens = has("tokens"), .dense = has("dense"), .slots = has("slots")};
}

/// Enables autocast for one scope if the weights have a low precision, so that norms and softmax are computed in float32 as in training.
/// Autocast that the caller has enabled stays as it is.
class WeightsScope {
 public:
  explicit WeightsScope(const at::Tensor& weights)
      : device_(weights.device().type()), before_(at::autocast::get_autocast_dtype(device_)) {
    const bool low = weights.scalar_type() == at::kHalf || weights.scalar_type() == at::kBFloat16;
    if (low && !at::autocast::is_autocast_enabled(device_)) autocast_.emplace(device_, weights.scalar_type());
  }
  ~WeightsScope() {
    if (!autocast_) return;
    autocast_.reset();
    at::autocast::set_autocast_dtype(device_, before_);
  }
  WeightsScope(const WeightsScope&) = delete;
  WeightsScope& operator=(const WeightsScope&) = delete;

 private:
  at::DeviceType device_;
  at::ScalarType before_;
  std::optional<Autocast> autocast_;
};

/// The words of a text, each with its text and its bytes [begin, end) (-1: unknown).
using Words = std::vector<std::tuple<std::string, std::int64_t, std::int64_t>>;

/// `image_size` is empty, or height and width.
CheckpointOptions options_of(const std::string& architecture, const std::vector<std::int64_t>& image_size, const std::string& state) {
  CheckpointOptions options{.architecture = architecture, .state = state};
  if (!image_size.empty()) options.image_size = config::Size(image_size.front(), image_size.back());
  return options;
}

class BoundModel {
 public:
  BoundModel(const std::string& path, const std::string& device, const std::string& architecture, const std::vector<std::int64_t>& image_size,
             const std::string& state)
      : BoundModel(load_for_inference(path, device, options_of(architecture, image_size, state))) {}

  explicit BoundModel(InferenceModel loaded) : loaded_(std::move(loaded)) {
    // Keeps of the file's weights only those that the model has not copied.
    std::map<std::string, at::Tensor> stored = std::exchange(loaded_.file.weights, {});
    for (auto& [name, tensor] : stored) {
      if (name.starts_with(kObjectivePrefix)) loaded_.file.weights[name] = tensor;
      if (name == "logit_scale" || name == "logit_bias") {
        temperature_[name] = tensor.to(loaded_.device, at::kFloat, /*non_blocking=*/false, /*copy=*/true);
        if (name == "logit_scale" && tensor.numel() == 1) temperature_[name].fill_(log_of_scale(tensor.item<double>()));
        temperature_[name].set_requires_grad(true);
      }
    }
  }

  /// Makes a model from state(). The weights are copies of its tensors, with their types and devices.
  BoundModel(const Tensors& weights, const Texts& metadata, const std::string& path, const std::string& tokenizer_error)
      : BoundModel(inference_model(from_stored_form({map_of(weights), map_of(metadata)}, path), path, tokenizer_error)) {
    for (const auto& item : tensors()) item.value().set_data(weights.at(item.key()).clone());
  }

  /// Returns the tensors and the metadata of a model file, the path of InferenceModel, and its tokenizer_error.
  std::tuple<Tensors, Texts, std::string, std::string> state() const {
    const io::TensorFile stored = stored_form(file());
    return {dict_of(stored.tensors), dict_of(stored.metadata), loaded_.path, loaded_.tokenizer_error};
  }

  /// Writes a model file, from which load_for_inference() reads this model, with further tensors of an objective.
  void save(const std::string& path, const Tensors& more) const {
    if (!loaded_.tokenizer_error.empty())
      user_error(path, ": not written, because the file must hold the tokenizer. ", loaded_.tokenizer_error);
    ModelFile out = file();
    for (const auto& item : more) out.weights[item.key()] = item.value().detach();
    save_model_file(path, out);
  }

  /// Gives the model a logit_scale or logit_bias, which it was trained without. The tensor itself is used, not a copy.
  void add_temperature(const std::string& name, const at::Tensor& tensor) { temperature_[name] = tensor; }

  std::string path() const { return loaded_.path; }
  bool takes_texts() const { return loaded_.model->has_text_tower(); }
  std::int64_t embed_dim() const { return loaded_.model->embed_dim(); }
  /// Returns the width of embeddings, the width of the image encoder's tokens, and the number of token ids, as in ObjectiveContext.
  std::vector<std::int64_t> widths() const {
    const ObjectiveContext context = objective_context(*loaded_.model);
    return {context.embed_dim, context.image_width, context.vocab_size};
  }
  void train(bool on) { loaded_.model->train(on); }

  /// Returns the parameters and buffers themselves, not copies, under OpenCLIP's names.
  Tensors tensors() const {
    Tensors out = dict_of(loaded_.model->state_dict());
    for (const auto& [name, tensor] : temperature_) out.insert(name, tensor);
    return out;
  }

  /// Returns the further tensors of the objective that the model was trained with.
  Tensors objective() const {
    Tensors out;
    for (const auto& [name, tensor] : loaded_.file.weights)
      out.insert(name.substr(std::string_view(kObjectivePrefix).size()), tensor);
    return out;
  }

  /// Returns as JSON the run's configuration, if there is one, with the model's and the tokenizer's settings.
  std::string config() const {
    const auto of_run = loaded_.file.extra.find("config");
    config::Node out =
        of_run == loaded_.file.extra.end() ? config::Node::map() : config::parse_yaml(of_run->second, loaded_.path);
    out.set("model", config::dump(loaded_.model->settings()));
    out.set("tokenizer", config::Node());
    if (!loaded_.file.tokenizer.name.empty())
      out.set("tokenizer", config::Value<config::ModuleSettings>::dump(loaded_.file.tokenizer));
    return config::to_json(out).dump();
  }

  /// Returns the numbers of rows and columns of patches.
  std::tuple<std::int64_t, std::int64_t> grid() const {
    const config::Size grid = loaded_.model->grid();
    return {grid.height, grid.width};
  }

  /// Converts the bytes of an image file, uint8 [n], to the model's input, uint8 [3, h, w].
  at::Tensor preprocess_file(const at::Tensor& bytes) const {
    const at::Tensor here = bytes.contiguous();
    try {
      return to_tensor(preprocess(decode_image(view_of(here), kDefaultMaxPixels, preprocessing()), preprocessing()));
    } catch (const SampleError& error) {
      throw UserError(error.what());
    }
  }

  /// Converts an image's pixels (image_of) to the model's input, uint8 [3, h, w]. `orientation` is the one in its EXIF data.
  at::Tensor preprocess_pixels(const at::Tensor& pixels, std::int64_t orientation) const {
    Image image = image_of(pixels, preprocessing().gray_range);
    if (preprocessing().exif_rotation) image = turned(image, static_cast<int>(orientation));
    return to_tensor(tessera::preprocess(image, preprocessing()));
  }

  /// Returns the outputs of the image tower for images from preprocess_file() or preprocess_pixels(), or for floating images that are
  /// `normalized`: `embeddings` [B, D], not normalized; with `dense`, also `tokens` [B, P, D], `mask` [B, P] and `grids` [B, 2].
  Tensors encode_images(const std::vector<at::Tensor>& images, bool normalized, bool dense) {
    if (images.empty()) return none();
    const TowerFeatures features = features_of(images, normalized, {.dense = dense});
    Tensors out = outputs(features, dense);
    const auto [rows, columns] = grid();
    const bool are_patches = dense && rows * columns == features.dense.size(1);  // not if the tokens are groups of patches
    if (dense && features.grids.defined())
      out.insert("grids", features.grids);
    else if (are_patches)
      out.insert("grids", at::tensor({rows, columns}, features.dense.options().dtype(at::kLong)).repeat({std::ssize(images), 1}));
    return out;
  }

  /// Returns the `embeddings` [B, D] of images (as for encode_images()) or texts, and those of these parts that `names` has: `dense`
  /// [B, N, D], `tokens` [B, N, W], which losses on tokens compare, and `slots` [B, L, E]. Nothing is normalized.
  Tensors image_parts(const std::vector<at::Tensor>& images, const std::vector<std::string>& names) {
    return parts(features_of(images, /*normalized=*/false, needs_of(names)));
  }
  Tensors text_parts(const at::Tensor& ids, const at::Tensor& mask, const std::vector<std::string>& names) {
    check_ids(ids);
    const WeightsScope scope(weights());
    return parts(loaded_.model->encode_text(text_input(ids, mask).to(device()), needs_of(names)));
  }

  /// Returns what an objective, given by its handle, needs from the towers, as feature_tensors(). The batch is a Loader's.
  Tensors features(const Tensors& batch, const at::Tensor& objective) {
    const Needs& needs = object_of<BoundObjective>(objective).needs();
    const WeightsScope scope(weights());
    Features found = loaded_.model->forward(batch_of(batch, needs).to(device()), needs);
    return feature_tensors(found);
  }
  DualEncoder& encoder() { return *loaded_.model; }

  /// Returns the texts' token ids [B, L] and mask [B, L].
  std::tuple<at::Tensor, at::Tensor> tokenize(const std::vector<std::string>& texts) const {
    const TowerInput input = tokenizer().encode_batch(texts);
    return {input.ids, input.mask};
  }

  /// Returns the outputs of the text tower, as for encode_images() but without `grids`.
  Tensors encode_texts(const std::vector<std::string>& texts, bool dense) {
    return encode(tokenizer().encode_batch(texts), dense);
  }

  /// Does the same as encode_texts() for ids [B, L] or [B, K, L] and a mask of the same shape. Without a mask, the tokenizer's padding
  /// ids at the end of a row are padding.
  Tensors encode_ids(const at::Tensor& ids, const std::optional<at::Tensor>& mask,
                                                bool dense) {
    check_ids(ids);
    TowerInput input;
    input.ids = ids.to(at::kLong);
    if (mask && mask->is_floating_point())
      user_error("encode_text: the mask is ", toString(mask->scalar_type()), ": give bool, True = a real token");
    if (mask && mask->sizes() != ids.sizes())
      user_error("encode_text: the mask is ", mask->sizes(), ", but the ids are ", ids.sizes(),
                 ": give one of the ids' shape");
    if (!mask && !loaded_.tokenizer_error.empty())
      user_error("encode_text: give the mask of the ids, too, because the tokenizer's padding is unknown. ", loaded_.tokenizer_error);
    if (mask)
      input.mask = mask->to(at::kBool);
    else if (!tokenizer().pad_is_text())
      input.mask = real_tokens(input.ids);
    if (input.mask.defined()) input.lengths = input.mask.sum(-1).cpu();  // so that padding may be anywhere
    return encode(input, dense);
  }

  std::vector<std::int64_t> token_ids(const std::string& text) const { return tokenizer().encode(text); }
  std::string decode(const std::vector<std::int64_t>& ids) const { return repair_utf8(tokenizer().decode(ids)); }

  /// Returns the words of a text, each with its text, its bytes [begin, end) (-1: unknown) and the positions of its tokens, and the
  /// spelling of all tokens.
  std::tuple<std::vector<std::tuple<std::string, std::int64_t, std::int64_t, std::vector<std::int64_t>>>,
             std::vector<std::string>>
  words(const std::string& text) const {
    std::vector<std::string> pieces = token_texts(tokenizer(), tokenizer().encode(text));
    std::vector<std::tuple<std::string, std::int64_t, std::int64_t, std::vector<std::int64_t>>> words;
    for (const TextWord& word : words_of(text, pieces, /*cut=*/true))
      words.emplace_back(repair_utf8(word.text), word.span[0], word.span[1], word.tokens);
    std::ranges::transform(pieces, pieces.begin(), [](const std::string& piece) { return repair_utf8(piece); });
    return {std::move(words), std::move(pieces)};
  }

  /// Returns the maps of the words of a text on an image, float [words, rows, columns], the words, and the rule and the note of WordMaps.
  /// `image` is uint8 [3, h, w], from preprocess_file() or preprocess_pixels().
  std::tuple<at::Tensor, Words, std::string, std::string> explain(const at::Tensor& image, const std::string& text) const {
    check_input(image, /*normalized=*/false);
    tokenizer();
    InferenceModel current = loaded_;
    current.file = file();
    current.device = device();
    EvaluationContext context;
    context.loss = checkpoint_loss(current);
    context.pool = checkpoint_pool(current);
    const WeightsScope scope(weights());
    const DualEncoderEmbedder embedder(loaded_.model, loaded_.tokenizer, 256, at::ScalarType::Undefined);
    const WordMaps maps(embedder, context);
    const TowerFeatures features = maps.embedder().encode_images(image_batch({image}, preprocessing()), maps.needs());
    const ImageWords found = maps.of(features, text, std::numeric_limits<std::int64_t>::max());
    at::Tensor out = at::empty({std::ssize(found.maps), found.grid.height, found.grid.width});
    Words words;
    for (const WordMap& map : found.maps) {
      std::ranges::copy(map.patches, out.data_ptr<float>() + std::ssize(words) * found.grid.height * found.grid.width);
      words.emplace_back(repair_utf8(map.word.text), map.word.span[0], map.word.span[1]);
    }
    return {out, std::move(words), maps.rule(), maps.note()};
  }

  std::vector<std::int64_t> special_ids() const { return tokenizer().special_ids(); }
  std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t> tokenizer_facts() const {
    return {tokenizer().name(), tokenizer().context_length(), tokenizer().vocab_size(), tokenizer().pad_id()};
  }
  /// Returns the bytes of the vocabulary's file, uint8 [n].
  at::Tensor vocabulary() const {
    const std::string& bytes = tokenizer().vocabulary_bytes();
    return at::from_blob(const_cast<char*>(bytes.data()), {std::ssize(bytes)}, at::kByte).clone();
  }
  /// Returns the tokenizer as a tokenizer.json; empty for SentencePiece, whose file is the vocabulary itself.
  std::string tokenizer_json() const {
    ModelFile file;
    file.model = loaded_.model->settings();
    file.tokenizer = loaded_.file.tokenizer;
    file.vocabulary = tokenizer().vocabulary_bytes();
    const auto files = published_tokenizer_files(file, "tokenizers");
    const auto found = files.find("tokenizer.json");
    return found == files.end() ? "" : found->second;
  }
  std::string tokenizer_identity() const {
    return loaded_.tokenizer && loaded_.tokenizer_error.empty() ? identity_of(*loaded_.tokenizer) : "";
  }

 private:
  const Preprocessing& preprocessing() const { return loaded_.model->settings().preprocessing; }

  /// Returns the current device of the weights, which torch.nn.Module.to() may have changed.
  at::Device device() const { return weights().device(); }
  at::Tensor weights() const { return loaded_.model->parameters().front(); }

  const Tokenizer& tokenizer() const {
    if (!takes_texts() || !loaded_.tokenizer) user_error(loaded_.path, ": the model has no text tower");
    return *loaded_.tokenizer;
  }

  /// Returns the model file of the current weights.
  ModelFile file() const {
    ModelFile out = loaded_.file;
    for (const auto& item : tensors()) out.weights[item.key()] = item.value().detach();
    return out;
  }

  /// Throws UserError unless an image has the type and size of the model's input.
  void check_input(const at::Tensor& image, bool normalized) const {
    const bool floating = image.is_floating_point(), any_shape = keeps_shapes(preprocessing());
    const char* type = toString(image.scalar_type());
    if (floating && !normalized)
      user_error("encode_image: got ", type,
                 " pixels, which may be scaled or normalized in several ways: give uint8 pixels (batch[\"image\"] of a "
                 "Loader, what preprocess() returned), or already_normalized=True for (v / 255 - mean) / std with the "
                 "model's mean and std");
    if (normalized && any_shape)
      user_error(
          "encode_image: already_normalized=True is not for a model that cuts images into patches: leave it out");
    if (normalized != floating || (!normalized && image.scalar_type() != at::kByte))
      user_error("encode_image: got ", type, " pixels, but expected ",
                 normalized ? "floating ones, because of already_normalized=True" : "uint8");
    const config::Size size = preprocessing().image_size;
    if (image.dim() != 3 || image.size(0) != 3 ||
        (!any_shape && (image.size(1) != size.height || image.size(2) != size.width)))
      user_error("encode_image: got an image ", image.sizes(), ", but this model takes [3, ", size.height, ", ",
                 size.width, "]: make the Loader with model=model, or let preprocess() resize the image");
  }

  void check_ids(const at::Tensor& ids) const {
    if (!at::isIntegralType(ids.scalar_type(), /*includeBool=*/false) || ids.dim() < 2 || ids.dim() > 3)
      user_error("encode_text: ids must be int64 [B, L], but they are ", toString(ids.scalar_type()), " ", ids.sizes(),
                 ": take those of model.tokenize(texts)");
    const std::int64_t entries = tokenizer().vocab_size();
    if (ids.is_cuda() || ids.numel() == 0 || entries == 0) return;  // a GPU would have to be waited for
    const auto [least, greatest] = at::aminmax(ids);
    if (least.item<std::int64_t>() < 0 || greatest.item<std::int64_t>() >= entries)
      user_error("encode_text: the ids go from ", least.item<std::int64_t>(), " to ", greatest.item<std::int64_t>(),
                 ", but the model's vocabulary has ", entries,
                 " entries: take the ids of model.tokenize(texts), or of a Loader with model=model");
  }

  /// Returns false for the padding ids at the end of each row. If the tokenizer also ends texts with the padding id, the first one is real.
  at::Tensor real_tokens(const at::Tensor& ids) const {
    const std::vector<std::int64_t> empty = tokenizer().encode("");
    const std::int64_t pad = tokenizer().pad_id(), ends = !empty.empty() && empty.back() == pad ? 1 : 0;
    const std::vector<std::int64_t> unknown = tokenizer().encode("\xF4\x80\x80\x80");  // a character that no vocabulary has
    if (ends == 0 && !unknown.empty() && unknown.back() == pad)
      user_error("encode_text: give the mask of the ids, too, because this tokenizer's id of padding is also that of unknown words, and its "
                 "texts have no end token");
    const at::Tensor place = at::arange(1, ids.size(-1) + 1, ids.options());
    return place <= at::where(ids != pad, place, 0).amax(-1, /*keepdim=*/true) + ends;
  }

  TowerFeatures features_of(const std::vector<at::Tensor>& images, bool normalized, const ViewNeeds& needs) {
    for (const at::Tensor& image : images) check_input(image, normalized);
    Batch batch;
    batch.images["image"] = image_batch(images, preprocessing());
    const WeightsScope scope(weights());
    return loaded_.model->encode_image(batch.to(device()).images["image"], needs);
  }

  static Tensors parts(const TowerFeatures& features) {
    Tensors out;
    for (const auto& [name, part] : {std::pair("embeddings", &features.global), std::pair("dense", &features.dense),
                                     std::pair("tokens", &features.tokens), std::pair("slots", &features.slots)})
      if (part->defined()) out.insert(name, *part);
    return out;
  }

  Tensors encode(const TowerInput& input, bool dense) {
    if (input.ids.numel() == 0) return none();
    const WeightsScope scope(weights());
    return outputs(loaded_.model->encode_text(input.to(device()), {.dense = dense}), dense);
  }

  Tensors none() const {
    Tensors out;
    out.insert("embeddings", weights().new_empty({0, embed_dim()}));
    return out;
  }

  Tensors outputs(const TowerFeatures& features, bool dense) const {
    Tensors out;
    out.insert("embeddings", features.global.to(weights().scalar_type()));
    if (!dense) return out;
    if (!features.dense.defined()) user_error("tokens=True: this model has no patch or token embeddings");
    out.insert("tokens", features.dense.to(weights().scalar_type()));
    out.insert("mask", features.mask.defined() ? features.mask
                                               : at::ones(features.dense.sizes().slice(0, features.dense.dim() - 1),
                                                          features.dense.options().dtype(at::kBool)));
    return out;
  }

  InferenceModel loaded_;                          // its file holds only the objective's weights
  std::map<std::string, at::Tensor> temperature_;  // logit_scale and logit_bias, as far as the file has them
};

}  // namespace

DualEncoder& dual_encoder_of(const at::Tensor& model) { return object_of<BoundModel>(model).encoder(); }

TORCH_LIBRARY_FRAGMENT(tessera, library) {
  library.def("model_make", &Make<BoundModel, const std::string&, const std::string&, const std::string&, const std::vector<std::int64_t>&,
                                  const std::string&>::call);
  library.def("model_restore", &Make<BoundModel, const Tensors&, const Texts&, const std::string&, const std::string&>::call);
  library.def("model_state", &Method<&BoundModel::state>::call);
  library.def("model_save", &Method<&BoundModel::save>::call);
  library.def("model_add_temperature", &Method<&BoundModel::add_temperature>::call);
  library.def("model_path", &Method<&BoundModel::path>::call);
  library.def("model_takes_texts", &Method<&BoundModel::takes_texts>::call);
  library.def("model_embed_dim", &Method<&BoundModel::embed_dim>::call);
  library.def("model_widths", &Method<&BoundModel::widths>::call);
  library.def("model_train", &Method<&BoundModel::train>::call);
  library.def("model_tensors", &Method<&BoundModel::tensors>::call);
  library.def("model_objective", &Method<&BoundModel::objective>::call);
  library.def("model_config", &Method<&BoundModel::config>::call);
  library.def("model_grid", &Method<&BoundModel::grid>::call);
  library.def("model_preprocess_file", &Method<&BoundModel::preprocess_file>::call);
  library.def("model_preprocess_pixels", &Method<&BoundModel::preprocess_pixels>::call);
  library.def("model_encode_images", &Method<&BoundModel::encode_images>::call);
  library.def("model_tokenize", &Method<&BoundModel::tokenize>::call);
  library.def("model_encode_texts", &Method<&BoundModel::encode_texts>::call);
  library.def("model_encode_ids", &Method<&BoundModel::encode_ids>::call);
  library.def("model_token_ids", &Method<&BoundModel::token_ids>::call);
  library.def("model_words", &Method<&BoundModel::words>::call);
  library.def("model_explain", &Method<&BoundModel::explain>::call);
  library.def("model_decode", &Method<&BoundModel::decode>::call);
  library.def("model_special_ids", &Method<&BoundModel::special_ids>::call);
  library.def("model_tokenizer_facts", &Method<&BoundModel::tokenizer_facts>::call);
  library.def("model_vocabulary", &Method<&BoundModel::vocabulary>::call);
  library.def("model_features", &Method<&BoundModel::features>::call);
  library.def("model_image_parts", &Method<&BoundModel::image_parts>::call);
  library.def("model_text_parts", &Method<&BoundModel::text_parts>::call);
  library.def("model_tokenizer_json", &Method<&BoundModel::tokenizer_json>::call);
  library.def("model_tokenizer_identity", &Method<&BoundModel::tokenizer_identity>::call);
}

}  // namespace tessera
