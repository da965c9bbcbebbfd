#include <chrono>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <unordered_map>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "src/base/digest.h"
#include "src/base/printable.h"
#include "src/data/features/feature_folder.h"
#include "src/data/features/taught_folder.h"
#include "src/data/formats/regions.h"
#include "src/data/loading/evaluation_reader.h"
#include "src/data/loading/text_views.h"
#include "src/models/autocast.h"
#include "src/training/config/resume_rules.h"
#include "src/training/run/image_features.h"
#include "src/training/run/training_run.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/data/loading/loader.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

constexpr double kSecondsBetweenLines = 30;
constexpr const char* kWayOut = "; write them again with trainer --write-features, or name another folder";

// Returns the settings that, together with the weights, determine which features the encoder outputs for an image.
std::string settings_of(const ModelSettings& model) {
  config::Node image, settings, whole;
  image.set("encoder", *config::dump(model.image).find("encoder"));
  settings.set("image", image);
  settings.set("preprocessing", config::dump(model.preprocessing));
  whole.set("model", settings);
  return config::to_json(whole).dump();
}

config::Node settings_tree(const std::string& json) {
  return config::from_json(nlohmann::json::parse(json), "features");
}

// Checks that the encoder outputs the same features for an image at every step. Otherwise stored features could not
// replace the encoder.
void check_encoder(const DualEncoder& model) {
  if (keeps_shapes(model.settings().preprocessing))
    user_error("data.features: features need images of one size, but with model.preprocessing.resize_mode: naflex their shapes "
               "vary: set another resize_mode, or data.features to null");
  const Encoder& encoder = model.image_tower().encoder();
  for (const auto& item : encoder.named_parameters())
    if (item.value().requires_grad())
      user_error(
          "data.features: the image encoder is trained (visual.", item.key(),
          "), but features need a frozen one: name it in parameters.frozen, or set data.features to null");
  if (encoder.draws_when_frozen())
    user_error(
        "data.features: the image encoder draws random numbers at each step, but stored features never change: set "
        "its patch_dropout and drop_path to 0");
}

// Returns the names of the tensors in EncodedImages that the objective and the read-out use.
std::vector<std::string> needed_tensors(const TrainingRun& run) {
  Tower& tower = run.model->image_tower();
  if (tower.encoder().only_stored()) {
    for (const auto& [name, view] : run.needs.images)
      if (view.tokens || view.dense || view.slots || view.attention || view.encoder_tokens || view.boxes || !view.extras.empty())
        user_error("data.features: the objective needs tokens of the images ", name, ", but model.image.encoder: stored_images stands for one "
                   "vector per image: name another objective, or the encoder itself");
    return {kPooledTensor};
  }
  const bool class_token = tower.encoder().has_class_token();
  bool tokens = tower.readout().reads_tokens() || !class_token, attention = false;
  for (const auto& [name, view] : run.needs.images) {
    tokens |= view.tokens || view.dense || view.encoder_tokens;
    attention |= view.attention;
  }
  std::vector<std::string> out;
  if (class_token) out.emplace_back("class_token");
  if (tokens) out.emplace_back("tokens");
  if (attention) out.emplace_back("attention");
  return out;
}

// Checks that the text tower's vectors never change, and that the objective needs nothing else of the texts.
void check_text_tower(const TrainingRun& run, const std::string& objective) {
  if (!run.model->has_text_tower()) user_error("data.features.texts: there is no text tower (model.text is null): set texts to false");
  Tower& tower = run.model->text_tower();
  for (const torch::nn::Module* part : std::initializer_list<const torch::nn::Module*>{&tower.encoder(), &tower.readout()})
    for (const auto& item : part->named_parameters())
      if (item.value().requires_grad())
        user_error("data.features.texts: the text tower's ", item.key(), " is trained, but stored vectors need a frozen encoder and read-out: "
                   "name them in parameters.frozen, or set texts to false");
  if (tower.encoder().draws_when_frozen())
    user_error("data.features.texts: the text encoder draws random numbers at each step, but stored vectors never change: set its drop_path "
               "to 0");
  for (const auto& [name, view] : run.needs.texts)
    if (view.tokens || view.dense || view.slots || view.attention || view.encoder_tokens || !view.extras.empty())
      user_error("data.features.texts: the objective ", objective, " needs tokens of the texts ", name,
                 ", but only one vector per text is stored: set texts to false");
}

// Returns the settings that, together with the weights, determine the vectors of texts.
std::string text_settings_of(const Config& config, const Tokenizer& tokenizer) {
  using config::Node;
  const Node text = config::dump(*config.model.text);
  const auto number = [](std::int64_t value) { return config::Value<std::int64_t>::dump(value); };
  const Node tower = Node::map({{"encoder", *text.find("encoder")}, {"readout", *text.find("readout")}});
  const Node words = Node::map({{"name", Node::scalar(tokenizer.name(), {}, true)},
                                {"vocabulary", Node::scalar(hexadecimal(fingerprint(tokenizer.vocabulary_bytes())), {}, true)},
                                {"context_length", number(tokenizer.context_length())}});
  return config::to_json(Node::map({{"model", Node::map({{"text", tower}})}, {"tokenizer", words}})).dump();
}

std::string text_weights(const DualEncoder& model) {
  return weights_digest(model.text_tower().encoder()) + weights_digest(model.text_tower().readout());
}

// Vectors from a .npy file, found by the names of their rows.
class VectorRows {
 public:
  VectorRows(const config::FilePath& file, const std::vector<std::string>& names, std::int64_t width, const char* encoder) : path_(file) {
    config::require(file);
    NpyMatrix read;
    try {
      read = read_npy(io::read_file(path_));
    } catch (const SampleError& error) {
      user_error(path_, ": ", error.what());
    }
    if (read.rows != std::ssize(names)) user_error(path_, ": has ", read.rows, " rows, but there are ", names.size(), " names for them");
    if (read.columns != width)
      user_error(path_, ": has ", read.columns, " columns, but ", encoder, ".width is ", width, ": make them equal");
    for (const std::string& name : names) rows_.emplace(name, std::ssize(rows_));
    values_ = at::tensor(at::ArrayRef<float>(read.values), at::kFloat).view({read.rows, read.columns});
    if (std::ssize(rows_) != std::ssize(names)) user_error(path_, ": two of its rows have the same name");
  }

  at::Tensor of(const std::vector<std::string>& names) const {
    std::vector<std::int64_t> chosen;
    for (const std::string& name : names) {
      const auto found = rows_.find(name);
      if (found == rows_.end()) user_error(path_, ": has no row for ", printable(name), ", which data.train has");
      chosen.push_back(found->second);
    }
    return values_.index_select(0, at::tensor(chosen, at::kLong));
  }

 private:
  std::string path_;
  std::unordered_map<std::string, std::int64_t> rows_;
  at::Tensor values_;
};

std::vector<std::string> lines_in_file(const config::FilePath& path) {
  config::require(path);
  std::vector<std::string> out = split(io::read_file(path), '\n');
  if (!out.empty() && out.back().empty()) out.pop_back();
  return out;
}

std::optional<VectorRows> image_vectors(const Config& config, const TrainingRun& run) {
  const std::optional<VectorFiles>& files = config.data.features->vectors;
  const Encoder& encoder = run.model->image_tower().encoder();
  if (encoder.only_stored() != (files && files->images))
    user_error("data.features.vectors.images is ", encoder.only_stored() ? "not set, but" : "set, but", " model.image.encoder is ",
               config.model.image.encoder.name, ": vectors of images and the encoder stored_images go together");
  if (!encoder.only_stored()) return std::nullopt;
  const std::string keys = std::filesystem::path(files->images->name).replace_extension(".keys.txt").string();
  return VectorRows(*files->images, lines_in_file(keys), encoder.width(), "model.image.encoder");
}

std::optional<VectorRows> text_vectors(const Config& config, const TrainingRun& run) {
  const std::optional<VectorFiles>& files = config.data.features->vectors;
  const Encoder& encoder = run.model->text_tower().encoder();
  if (encoder.only_stored() != (files && files->texts))
    user_error("data.features.vectors.texts is ", encoder.only_stored() ? "not set, but" : "set, but", " model.text.encoder is ",
               config.model.text->encoder.name, ": vectors of texts and the encoder stored_texts go together");
  if (!encoder.only_stored()) return std::nullopt;
  return VectorRows(*files->texts, lines_in_file(*files->captions), encoder.width(), "model.text.encoder");
}

// Writes the vectors of samples' texts.
class TextVectorWriter {
 public:
  TextVectorWriter(const Config& config, const TrainingRun& run, FeatureManifest manifest)
      : run_(run), vectors_(text_vectors(config, run)) {
    check_text_tower(run, config.objective.name);
    manifest.settings = text_settings_of(config, *run.tokenizer);
    manifest.weights = text_weights(*run.model);
    writer_.emplace(config.data.features->folder.name + kTaughtTexts, manifest);
  }

  void add(const std::vector<EvaluationSample>& samples) {
    std::vector<std::string> keys, texts;
    std::vector<std::uint64_t> contents;
    for (const EvaluationSample& sample : samples)
      for (const std::string& text : usable_texts(sample.sample)) {
        keys.push_back(sample.sample.key);
        contents.push_back(text_fingerprint(text));
        texts.push_back(text);
      }
    if (texts.empty()) return;
    writer_->add(keys, contents, FeatureWriter::Tensors{{kPooledTensor, vectors_ ? vectors_->of(texts) : pooled(texts)}});
  }
  void finish(const std::map<std::string, std::int64_t>& left_out) { writer_->finish(left_out); }

 private:
  at::Tensor pooled(const std::vector<std::string>& texts) const {
    return run_.model->text_tower().pooled(run_.tokenizer->encode_batch(texts).to(run_.device)).to(at::kFloat);
  }

  const TrainingRun& run_;
  std::optional<VectorRows> vectors_;
  std::optional<FeatureWriter> writer_;
};

EncodedImages without_unneeded(EncodedImages encoded, const std::vector<std::string>& needed) {
  const auto drop = [&](const char* name, at::Tensor& tensor) {
    if (!contains(needed, name)) tensor = at::Tensor();
  };
  drop("tokens", encoded.tokens);
  drop("class_token", encoded.class_token);
  drop("attention", encoded.attention);
  return encoded;
}

}  // namespace

std::string weights_digest(const torch::nn::Module& module) {
  std::uint64_t digest = 0;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    const at::Tensor bytes = tensor.detach().cpu().contiguous();
    digest = fingerprint(concat(name, " ", bytes.scalar_type(), " ", bytes.sizes()), digest);
    digest = fingerprint({static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()}, digest);
  };
  for (const auto& item : module.named_parameters()) add(item.key(), item.value());
  for (const auto& item : module.named_buffers()) add(item.key(), item.value());
  return hexadecimal(digest);
}

FeatureManifest write_image_features(const Config& config) {
  if (!config.data.features) user_error("--write-features: data.features.folder is not set: name a folder there");
  Config live = config;
  live.data.features.reset();
  TrainingRun run = build_training_run(live);
  check_encoder(*run.model);
  for (const std::string& line : load_initial_weights(run, config)) log::warning(line);
  run.model->eval();

  FeatureManifest manifest;
  manifest.settings = settings_of(config.model);
  manifest.weights = weights_digest(run.model->image_tower().encoder());
  manifest.precision = config.training.precision;
  manifest.data = run.train->describe();
  manifest.dtype = config.data.features->dtype;
  const std::optional<VectorRows> vectors = image_vectors(config, run);
  std::optional<TextVectorWriter> texts;
  if (config.data.features->texts) texts.emplace(config, run, manifest);
  FeatureWriter writer(config.data.features->folder, manifest);
  const std::vector<std::string> needed = needed_tensors(run);
  EvaluationReader reader(run.train, config.model.preprocessing, config.evaluation.batch_size,
                          config.data.loader.threads);
  const at::NoGradGuard no_grad;
  const PrecisionScope precision(run.device, config.training.precision);
  using Clock = std::chrono::steady_clock;
  auto last_line = Clock::now();
  for (auto samples = reader.next(); !samples.empty(); samples = reader.next()) {
    std::vector<std::string> keys;
    std::vector<std::uint64_t> images;
    std::vector<at::Tensor> pixels;
    for (const EvaluationSample& sample : samples) {
      keys.push_back(sample.sample.key);
      images.push_back(sample.image);
      pixels.push_back(sample.pixels);
    }
    if (texts) texts->add(samples);
    if (vectors)
      writer.add(keys, images, FeatureWriter::Tensors{{kPooledTensor, vectors->of(keys)}});
    else
      writer.add(keys, images, without_unneeded(run.model->encode_images(at::stack(pixels).to(run.device)), needed));
    if (std::chrono::duration<double>(Clock::now() - last_line).count() < kSecondsBetweenLines) continue;
    last_line = Clock::now();
    log::info("features: ", with_thousands(reader.statistics().samples), " of ", with_thousands(run.train->size()),
              " images");
  }
  if (texts) texts->finish(reader.statistics().skipped);
  return writer.finish(reader.statistics().skipped);
}

namespace {

// Rejects features made with other settings than `ours`, JSON of settings, or with another data type.
void check_made_alike(const FeatureFolder& features, const std::string& ours, const Config& config) {
  const FeatureManifest& manifest = features.manifest();
  std::vector<std::string> other;
  for (const Change& change : changes(settings_tree(manifest.settings), settings_tree(ours))) other.push_back(change.text());
  if (manifest.dtype != config.data.features->dtype)
    other.push_back(concat("data.features.dtype: ", manifest.dtype, " there, ", config.data.features->dtype, " here"));
  if (!other.empty())
    user_error("data.features: ", features.path(), " holds features made with other settings: ", c10::Join("; ", other), kWayOut);
}

}  // namespace

std::shared_ptr<const FeatureFolder> open_image_features(const Config& config, const TrainingRun& run) {
  check_encoder(*run.model);
  auto features = std::make_shared<const FeatureFolder>(config.data.features->folder);
  const FeatureManifest& manifest = features->manifest();
  check_made_alike(*features, settings_of(config.model), config);
  for (const std::string& name : needed_tensors(run))
    if (manifest.find(name) == nullptr)
      user_error("data.features: ", features->path(), " has no ", name, " of the images, which the objective ",
                 config.objective.name, " or the image read-out needs", kWayOut);
  return features;
}

std::shared_ptr<const FeatureFolder> open_text_features(const Config& config, const TrainingRun& run) {
  check_text_tower(run, config.objective.name);
  refuse_sentences(run.needs, config.data.loader, "data.features.texts");
  auto features = std::make_shared<const FeatureFolder>(config.data.features->folder.name + kTaughtTexts);
  check_made_alike(*features, text_settings_of(config, *run.tokenizer), config);
  if (features->manifest().find(kPooledTensor) == nullptr)
    user_error("data.features: ", features->path(), " has no vectors of texts", kWayOut);
  return features;
}

void check_feature_weights(const TrainingRun& run) {
  if (run.text_features && run.text_features->manifest().weights != text_weights(*run.model))
    user_error("data.features: ", run.text_features->path(), " holds vectors of a text tower with other weights", kWayOut);
  if (!run.features || run.features->manifest().weights == weights_digest(run.model->image_tower().encoder())) return;
  user_error("data.features: ", run.features->path(), " holds features of an image encoder with other weights",
             kWayOut);
}

}  // namespace tessera
