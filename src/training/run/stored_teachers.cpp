#include "src/training/run/stored_teachers.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "src/base/progress.h"
#include "src/data/image/decode.h"
#include "src/data/image/image_views.h"
#include "src/data/loading/sample_pass.h"
#include "src/data/loading/sample_transform.h"
#include "src/data/loading/text_views.h"
#include "src/remote/local_copy.h"
#include "src/remote/store.h"
#include "src/training/config/resume_rules.h"
#include "src/training/run/image_features.h"
#include "src/training/run/teacher.h"
#include "src/training/run/training_run.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/data/source.h>
#include <tessera/evaluation/embedder.h>
#include <tessera/objectives/make_objective.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

constexpr const char* kWriteAgain = "; write them again with trainer --write-features, or name another folder";

// Returns the settings that determine which crops training shows, and which embeddings teachers give for them.
std::string crop_settings(const Config& config) {
  using config::Node;
  const StoredTeacherSettings& teachers = *config.data.teachers;
  const Node models = config::Value<std::vector<config::FilePath>>::dump(teachers.models);
  const Node loader = config::dump(static_cast<const ImageSettings&>(config.data.loader));
  const Node data = Node::map({{"teachers", Node::map({{"models", models}, {"crops", config::Value<std::int64_t>::dump(teachers.crops)}})},
                         {"loader", loader}});
  return config::to_json(Node::map({{"seed", config::Value<std::int64_t>::dump(config.seed)},
                                    {"data", data},
                                    {"model", Node::map({{"preprocessing", config::dump(config.model.preprocessing)}})}}))
      .dump();
}

std::int64_t taught_width(const Needs& needs) {
  std::int64_t width = 0;
  for (const auto* views : {&needs.images, &needs.texts})
    for (const auto& [name, view] : *views) width = std::max(width, view.taught);
  return width;
}

Needs needs_of(const Config& config) {
  DualEncoder model(config.model);
  return make_objective(config.objective, "objective", objective_context(model))->needs();
}

// Crops of a sample's image, and all its texts.
struct TaughtSample : SampleOutcome {
  std::uint64_t image = 0;
  std::vector<std::map<std::string, ViewImage>> crops;
  std::vector<std::string> texts;
};

// Embeds and writes samples.
class TaughtWriter {
 public:
  TaughtWriter(const Config& config, const std::string& data) : batch_(config.evaluation.batch_size) {
    const at::Device device = choose_device(config, 0);
    std::string digests;
    for (const config::FilePath& path : config.data.teachers->models) {
      teachers_.push_back(load_teacher(remote::local_copy_of(path), config.model.preprocessing, nullptr, device));
      digests += (digests.empty() ? "" : " ") + weights_digest(*teachers_.back().model);
    }
    FeatureManifest manifest;
    manifest.settings = crop_settings(config);
    manifest.weights = digests;
    manifest.precision = "float32";
    manifest.data = data;
    manifest.dtype = config.data.teachers->dtype;
    images_.emplace(config.data.teachers->folder.name + kTaughtImages, manifest);
    texts_.emplace(config.data.teachers->folder.name + kTaughtTexts, manifest);
  }

  void add(const TaughtSample& sample) {
    for (std::size_t crop = 0; crop < sample.crops.size(); ++crop)
      for (const auto& [view, image] : sample.crops[crop]) {
        crops_.keys.push_back(sample.key);
        crops_.contents.push_back(crop_fingerprint(sample.image, view, static_cast<std::int64_t>(crop)));
        pixels_.push_back(at::tensor(at::ArrayRef<std::uint8_t>(image.planes), at::kByte).view({3, image.size.height, image.size.width}));
      }
    for (const std::string& text : sample.texts) {
      captions_.keys.push_back(sample.key);
      captions_.contents.push_back(text_fingerprint(text));
      strings_.push_back(text);
    }
    if (std::ssize(pixels_) >= batch_) write_crops();
    if (std::ssize(strings_) >= batch_) write_texts();
  }

  FeatureManifest finish(const std::map<std::string, std::int64_t>& left_out) {
    write_crops();
    write_texts();
    texts_->finish(left_out);
    return images_->finish(left_out);
  }

 private:
  struct Rows {
    std::vector<std::string> keys;
    std::vector<std::uint64_t> contents;
  };

  template <class Encode>
  at::Tensor embeddings(const Encode& encode) const {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> out;
    for (const Teacher& teacher : teachers_)
      out.push_back(unit_rows(encode(DualEncoderEmbedder(teacher.model, teacher.tokenizer, batch_)).global.to(at::kFloat)));
    return at::cat(out, 1);
  }
  static void write(FeatureWriter& writer, Rows& rows, const at::Tensor& embeddings) {
    writer.add(rows.keys, rows.contents, FeatureWriter::Tensors{{kTaughtTensor, embeddings}});
    rows = {};
  }
  void write_crops() {
    std::map<std::vector<std::int64_t>, std::vector<std::size_t>> by_size;  // views may have sizes of their own
    for (std::size_t i = 0; i < pixels_.size(); ++i) by_size[pixels_[i].sizes().vec()].push_back(i);
    for (const auto& [size, places] : by_size) {
      Rows rows;
      std::vector<at::Tensor> pixels;
      for (const std::size_t i : places) {
        rows.keys.push_back(crops_.keys[i]);
        rows.contents.push_back(crops_.contents[i]);
        pixels.push_back(pixels_[i]);
      }
      write(*images_, rows, embeddings([&](const Embedder& embedder) { return embedder.encode_images(at::stack(pixels), {}); }));
    }
    crops_ = {};
    pixels_.clear();
  }
  void write_texts() {
    if (strings_.empty()) return;
    write(*texts_, captions_, embeddings([&](const Embedder& embedder) { return embedder.encode_texts(strings_, {}); }));
    strings_.clear();
  }

  std::int64_t batch_;
  std::vector<Teacher> teachers_;
  std::optional<FeatureWriter> images_, texts_;
  Rows crops_, captions_;
  std::vector<at::Tensor> pixels_;
  std::vector<std::string> strings_;
};

}  // namespace

bool is_taught(const Needs& needs) {
  return taught_width(needs) > 0;
}

FeatureManifest write_teachers(const Config& config) {
  if (!config.data.teachers) user_error("--write-features: data.teachers.folder is not set: name a folder there");
  Needs needs = needs_of(config);
  if (!is_taught(needs))
    user_error("--write-features: the objective ", config.objective.name, " does not use embeddings of teachers: set data.teachers to null");
  if (keeps_shapes(config.model.preprocessing))
    user_error("data.teachers: embeddings need images of one size, but with model.preprocessing.resize_mode: naflex their shapes vary: set "
               "another resize_mode");
  needs.texts.clear();
  std::erase_if(needs.images, [](const auto& view) { return view.second.taught == 0; });
  remote::use_settings(config.data.cache);
  const std::shared_ptr<const Source> source = sources().make(config.data.train, "data.train");
  const auto views =
      std::make_shared<const ImageViews>(config.model.preprocessing, config.data.loader, needs, static_cast<std::uint64_t>(config.seed));
  TaughtWriter writer(config, source->describe());
  std::map<std::string, std::int64_t> left_out;
  Progress progress("teachers", "images");
  std::int64_t done = 0;
  for (const SourceComponent& component : source->mixing().components) {
    const PassPlan plan = plan_component(source, component, std::numeric_limits<std::int64_t>::max(), config.data.loader);
    SamplePass<TaughtSample> pass(plan, [views, crops = config.data.teachers->crops](Sample& sample, std::int64_t, TaughtSample& out) {
      if (!has_image(sample)) throw_no_image(sample);
      out.image = image_fingerprint(sample);
      out.texts = usable_texts(sample);
      for (std::int64_t crop = 0; crop < crops; ++crop) {
        const SampleDraw draw = draw_of_crop(sample, {}, crop);
        out.crops.push_back(views->make(sample, draw.index, draw.repeat));
      }
    });
    for (std::int64_t i = 0; i < plan.count; ++i) {
      const TaughtSample sample = pass.next();
      if (sample.good())
        writer.add(sample);
      else
        ++left_out[sample.bad_reason];
      progress.show(++done, source->size());
    }
  }
  return writer.finish(left_out);
}

std::shared_ptr<const TaughtFolder> open_teachers(const Config& config, const Needs& needs) {
  if (!config.data.teachers)
    user_error("objective ", config.objective.name, " needs embeddings of teachers: set data.teachers to {folder: FOLDER, models: [MODEL, "
               "...]} and write them with trainer --write-features");
  refuse_sentences(needs, config.data.loader, "data.teachers");
  auto folder = std::make_shared<const TaughtFolder>(config.data.teachers->folder);
  const auto tree = [](const std::string& json) { return config::from_json(nlohmann::json::parse(json), "teachers"); };
  std::vector<std::string> other;
  for (const Change& change : changes(tree(folder->manifest().settings), tree(crop_settings(config)))) other.push_back(change.text());
  if (folder->manifest().dtype != config.data.teachers->dtype)
    other.push_back(concat("data.teachers.dtype: ", folder->manifest().dtype, " there, ", config.data.teachers->dtype, " here"));
  if (!other.empty())
    user_error("data.teachers: ", folder->path(), " holds embeddings made with other settings: ", c10::Join("; ", other), kWriteAgain);
  if (folder->width() != taught_width(needs))
    user_error("data.teachers: ", folder->path(), " holds embeddings of ", folder->width(), " columns, but the widths in objective.teachers "
               "add up to ", taught_width(needs), ": make them those of the models in data.teachers.models");
  return folder;
}

}  // namespace tessera
