#include <chrono>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "src/base/digest.h"
#include "src/data/features/feature_folder.h"
#include "src/data/loading/evaluation_reader.h"
#include "src/models/autocast.h"
#include "src/training/config/resume_rules.h"
#include "src/training/run/image_features.h"
#include "src/training/run/training_run.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/data/loading/loader.h>

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

std::string compute_digest(const torch::nn::Module& module) {
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

EncodedImages without_unneeded(EncodedImages encoded, const std::vector<std::string>& needed) {
  const auto drop = [&](const char* name, at::Tensor& tensor) {
    if (std::find(needed.begin(), needed.end(), name) == needed.end()) tensor = at::Tensor();
  };
  drop("tokens", encoded.tokens);
  drop("class_token", encoded.class_token);
  drop("attention", encoded.attention);
  return encoded;
}

}  // namespace

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
  manifest.weights = compute_digest(run.model->image_tower().encoder());
  manifest.precision = config.training.precision;
  manifest.data = run.train->describe();
  manifest.dtype = config.data.features->dtype;
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
    writer.add(keys, images, without_unneeded(run.model->encode_images(at::stack(pixels).to(run.device)), needed));
    if (std::chrono::duration<double>(Clock::now() - last_line).count() < kSecondsBetweenLines) continue;
    last_line = Clock::now();
    log::info("features: ", with_thousands(reader.statistics().samples), " of ", with_thousands(run.train->size()),
              " images");
  }
  return writer.finish(reader.statistics().skipped);
}

std::shared_ptr<const FeatureFolder> open_image_features(const Config& config, const TrainingRun& run) {
  check_encoder(*run.model);
  auto features = std::make_shared<const FeatureFolder>(config.data.features->folder);
  const FeatureManifest& manifest = features->manifest();
  std::vector<std::string> other;
  for (const Change& change : changes(settings_tree(manifest.settings), settings_tree(settings_of(config.model))))
    other.push_back(change.text());
  if (manifest.dtype != config.data.features->dtype)
    other.push_back(concat("data.features.dtype: ", manifest.dtype, " there, ", config.data.features->dtype, " here"));
  if (!other.empty())
    user_error("data.features: ", features->path(), " holds features made with other settings: ", c10::Join("; ", other),
               kWayOut);
  for (const std::string& name : needed_tensors(run))
    if (manifest.find(name) == nullptr)
      user_error("data.features: ", features->path(), " has no ", name, " of the images, which the objective ",
                 config.objective.name, " or the image read-out needs", kWayOut);
  return features;
}

void check_feature_weights(const TrainingRun& run) {
  if (!run.features || run.features->manifest().weights == compute_digest(run.model->image_tower().encoder())) return;
  user_error("data.features: ", run.features->path(), " holds features of an image encoder with other weights",
             kWayOut);
}

}  // namespace tessera
