#include "tests/training/tiny_run.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/training/trainer.h"
#include <tessera/base/text.h>
#include <tessera/data/tokenizers/tokenizer.h>
#include <tessera/io/atomic_file.h>
#include <tessera/models/tower.h>
#include <tessera/objectives/objective.h>
#include <tessera/sample.h>

namespace tessera {
namespace {

struct LettersSettings {
  std::int64_t context_length = 24;
};
template <class Visitor>
void fields(Visitor& v, LettersSettings& s) {
  v("context_length", s.context_length, "most ids", config::at_least(1));
}

class Letters : public Tokenizer {
 public:
  explicit Letters(const LettersSettings& settings) : length_(settings.context_length) {}
  std::vector<std::int64_t> encode(std::string_view text) const override {
    std::vector<std::int64_t> ids;
    for (const char c : text.substr(0, static_cast<std::size_t>(length_)))
      ids.push_back(static_cast<unsigned char>(c) % 64);
    return ids;
  }
  std::int64_t count_ids(std::string_view text) const override { return std::ssize(text); }
  std::string decode(const std::vector<std::int64_t>&) const override { return {}; }
  std::int64_t vocab_size() const override { return 64; }
  std::int64_t context_length() const override { return length_; }
  std::int64_t pad_id() const override { return 0; }
  std::string name() const override { return "test_letters"; }
  const std::string& vocabulary_bytes() const override { return bytes_; }

 private:
  std::int64_t length_;
  std::string bytes_ = "letters";
};

struct StepSettings {
  std::int64_t from = 0;
  std::int64_t until = 1'000'000;
};
template <class Visitor>
void fields(Visitor& v, StepSettings& s) {
  v("from", s.from, "first bad step", config::at_least(0));
  v("until", s.until, "first step after it that is good", config::at_least(0));
}

class Distance : public Objective {
 public:
  Losses forward(const Features& features, const StepContext&) override {
    const at::Tensor loss = (features.image().global - features.text().global).square().sum(1).mean();
    return {loss, {{"loss_distance", loss}}};
  }
  Needs needs() const override { return {}; }
};

// Multiplies the distance by a number from the data, and compares the encoder's tokens, too.
class Extras : public Objective {
 public:
  Losses forward(const Features& features, const StepContext&) override {
    const TowerFeatures &image = features.image(), &text = features.text();
    const at::Tensor distances = (image.global - text.global).square().sum(1) +
                                 (image.extras.at("tokens") - text.extras.at("tokens")).square().sum(1);
    return {(distances * features.extras.at("length")).mean(), {}};
  }
  Needs needs() const override {
    const TowerExtra sum{[](const TowerInput&, const Encoded& encoded) { return 0.1 * encoded.tokens.sum(1); }};
    const auto length = [](const Sample& sample) { return at::scalar_tensor(0.01 * static_cast<double>(sample.captions.at(0).size())); };
    return {.images = {{"image", {.extras = {{"tokens", sum}}}}},
            .texts = {{"caption", {.extras = {{"tokens", sum}}}}},
            .extras = {{"length", {length, at::ones({})}}}};
  }
};

class NotFinite : public Distance {
 public:
  explicit NotFinite(const StepSettings& settings) : settings_(settings) {}
  bool follows_step() const override { return true; }
  Losses forward(const Features& features, const StepContext& context) override {
    Losses losses = Distance::forward(features, context);
    if (context.step >= settings_.from && context.step < settings_.until)
      losses.total = losses.total + at::log(-losses.total);
    return losses;
  }

 private:
  StepSettings settings_;
};

class Observed : public Distance {
 public:
  Losses forward(const Features& features, const StepContext& context) override {
    if (step_observer()) step_observer()(context);
    return Distance::forward(features, context);
  }
};

struct TeacherSettings {
  double momentum = 0.5;
  std::int64_t overflow_at = -1;
  std::int64_t nan_at = -1;
};
template <class Visitor>
void fields(Visitor& v, TeacherSettings& s) {
  v("momentum", s.momentum, "share of the teacher that stays in the first step; each further one adds 0.1",
    config::in_range(0, 1));
  v("overflow_at", s.overflow_at, "step whose loss is finite and whose gradient is not", config::at_least(-1));
  v("nan_at", s.nan_at, "step whose loss is NaN", config::at_least(-1));
}

// An objective that pulls image embeddings towards the embeddings of their texts and towards the teacher's image embeddings. It has a
// learned scale, which the teacher averages too, and a buffer that follows the loss as DINO's center follows the teacher's outputs.
class StudentAndTeacher : public Objective {
 public:
  explicit StudentAndTeacher(const TeacherSettings& settings) : settings_(settings) {
    scale_ = register_parameter("scale", at::full({}, 0.5));
    center_ = register_buffer("center", at::zeros({}));
  }
  Losses forward(const Features& features, const StepContext& context) override {
    const at::Tensor& image = features.image().global;
    const auto& teacher = dynamic_cast<const StudentAndTeacher&>(*context.teacher);
    const at::Tensor target = features.teacher_image().global * teacher.scale_;
    const at::Tensor distillation = (image * scale_ - target).square().sum(1).mean();
    const at::Tensor distance = (image - features.text().global).square().sum(1).mean();
    at::Tensor total = distance + distillation;
    if (context.step == settings_.nan_at) total = total + at::log(-total);
    if (context.step == settings_.overflow_at) total = total + at::sqrt(total - total.detach());
    seen_ = total.detach().to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    return {total, {{"distance", distance}, {"distillation", distillation}}};
  }
  Needs needs() const override {
    Needs needs;
    needs.images["image"].teacher = true;
    return needs;
  }
  void after_step(const StepContext& done) override {
    const at::NoGradGuard no_grad;
    done.group.all_reduce(seen_);
    center_.lerp_(seen_ / done.group.size(), 0.1);
  }
  double teacher_momentum(const StepContext& step) const override {
    return settings_.momentum + 0.1 * static_cast<double>(step.step);
  }

 private:
  TeacherSettings settings_;
  at::Tensor scale_, center_, seen_;
};

// Returns a map from each name that overrides_of() lists to a set of overrides. In the sets with several captions per image, some images
// have too few captions. The sets also turn on randomness in training, such as flips and stochastic depth.
const std::map<std::string, std::vector<std::string>>& named_settings() {
  static const std::map<std::string, std::vector<std::string>> settings = {
      {"captions",
       {"data.train.objects=[1, 2]",
        "data.loader.captions={slots: [{count: 2, max_sentences: 2, fields: [parts]}, {whole: true, fields: [none]}, "
        "{max_sentences: 3, distinct: true}]}"}},
      {"crops and captions",
       {"data.train.objects=[1, 2]", "model.image.encoder.patch_size=4",
        "data.loader.captions={slots: [{count: 2, max_sentences: 2}, {whole: true, fields: [none]}, {distinct: true}]}",
        "data.loader.views={global: {count: 2, scale: [0.4, 1], flip: 0.5}, local: {count: 2, image_size: 8, scale: [0.1, "
        "0.4]}}"}},
      {"lion", {"optimizer={name: lion, lr: 3.0e-3, weight_decay: 0.3}"}},
      {"muon", {"optimizer={name: muon, lr: 1.0e-2, ns_type: float32}"}},
      {"rounded moments", {"training.moments=bfloat16"}},
      {"averages", {"training.accumulation=2", "training.ema={}"}},
      {"groups",
       {"model.image.encoder={name: groupvit, patch_size: 4, width: 16, depths: [1, 1, 1], heads: [2, 2, 2], "
        "num_group_tokens: [4, 2, 0], num_output_groups: [4, 2]}",
        "model.image.readout={name: groups, output_dim: 8}", "model.image.projection={name: none}",
        "model.text.encoder={name: text_group_encoder, width: 16, heads: 2, token_layers: 1, group_layers: 1, num_groups: 3}",
        "model.text.readout={name: groups, output_dim: 8}", "model.text.projection={name: none}"}},
      {"boxes",
       {"model.image.encoder.patch_size=4", "data.loader.boxes={count: 2, negatives: 2}", "data.loader.negatives={count: 2}"}},
      {"own shapes",
       {"data.train.aspect=2.5", "data.loader.resolution=[{until: 0.4, max_patches: 4}]", "data.loader.augmentation={scale: [0.4, 1], ratio: [0.5, 2], flip: 0.5}",
        "model.preprocessing={resize_mode: naflex, max_patches: 12}", "model.image.encoder={patch_size: 4, registers: 1, drop_path: 0.2, layers: 2}"}},
      {"siglip",
       {"model.image.encoder={class_token: false, pre_norm: false, patch_bias: true, activation: gelu_tanh, norm_eps: 1.0e-6}",
        "model.image.readout={name: map, heads: 2, mlp_hidden: 24}", "model.text.encoder={activation: gelu_tanh}",
        "model.text.readout=eos", "model.text.projection.bias=true"}},
      {"dinov3",
       {"model.image.encoder={registers: 2, pre_norm: false, patch_bias: true, position_embedding: none, qkv_bias: no_key, "
        "layer_scale_init: 0.5, rotary: {base: 100, coordinates: centered, pairs: halves, shift: 0.2, jitter: 1.2, rescale: 2.0}}",
        "model.image.readout=cls_mean"}},
      {"eva02",
       {"model.image.encoder={pre_norm: false, patch_bias: true, qkv_bias: no_key, attention_norm: true, mlp: gated, mlp_hidden: 24, "
        "mlp_norm: true, activation: silu, rotary: {reference: 4}}"}}};
  return settings;
}

}  // namespace

std::vector<std::string> overrides_of(const std::string& test_case) {
  const std::string mark = " with ";
  const std::size_t at = test_case.find(mark);
  const std::vector<std::string> out{"objective=" + test_case.substr(0, at)};
  return at == std::string::npos ? out : with(out, named_settings().at(test_case.substr(at + mark.size())));
}

std::function<void(const StepContext&)>& step_observer() {
  static std::function<void(const StepContext&)> observer;
  return observer;
}

void register_test_modules() {
  if (tokenizers().contains("test_letters")) return;
  tokenizers().add<LettersSettings>("test_letters", "bytes", [](const LettersSettings& s, const TokenizerContext&) {
    return std::make_shared<Letters>(s);
  });
  objectives().add<config::NoSettings>(
      "test_distance", "squared distance",
      [](const config::NoSettings&, const ObjectiveContext&) { return std::make_shared<Distance>(); });
  objectives().add<StepSettings>("test_not_finite", "NaN", [](const StepSettings& s, const ObjectiveContext&) {
    return std::make_shared<NotFinite>(s);
  });
  objectives().add<config::NoSettings>(
      "test_observed", "squared distance",
      [](const config::NoSettings&, const ObjectiveContext&) { return std::make_shared<Observed>(); });
  objectives().add<config::NoSettings>(
      "test_extras", "squared distances with weights from the data",
      [](const config::NoSettings&, const ObjectiveContext&) { return std::make_shared<Extras>(); });
  objectives().add<TeacherSettings>(
      "test_teacher", "student and teacher",
      [](const TeacherSettings& s, const ObjectiveContext&) { return std::make_shared<StudentAndTeacher>(s); });
}

std::string tiny_yaml(const std::string& objective) {
  return R"(seed: 3
data:
  train: {name: shapes, size: 40, image_size: 16}
  validation: {name: shapes, split: validation, size: 16, image_size: 16}
  loader: {batch_size: 8, threads: 2, augmentation: {scale: [0.8, 1.0]}}
tokenizer: {name: test_letters}
model:
  preprocessing: {image_size: 16}
  image:
    encoder: {name: vit, patch_size: 8, width: 16, layers: 1, heads: 2}
    readout: {name: cls}
    projection: {name: linear, embed_dim: 8}
  text:
    encoder: {name: text_transformer, width: 16, layers: 1, heads: 2, attention: bidirectional}
    readout: {name: gap}
    projection: {name: linear, embed_dim: 8}
objective: {name: )" +
         objective + R"(}
optimizer: {name: adamw, lr: 1.0e-2}
schedule: {warmup_steps: 2}
training: {steps: 6, clip_norm: 1.0, device: cpu}
checkpoint: {every_steps: 3, keep_last: 2}
log: {every_steps: 1, peak_tflops: 0.1}
)";
}

Config tiny_config(const std::string& folder, const std::vector<std::string>& overrides, const std::string& objective) {
  register_test_modules();
  config::Node tree = config::parse_yaml(tiny_yaml(objective), "tiny.yaml");
  config::apply_override(tree, "run.folder=" + folder);
  for (const std::string& each : overrides) config::apply_override(tree, each);
  return resolve_config(tree, "tiny");
}

std::vector<nlohmann::json> json_lines(const std::string& path) {
  std::vector<nlohmann::json> out;
  for (const std::string& line : split(io::read_file(path), '\n'))
    if (!line.empty()) out.push_back(nlohmann::json::parse(line));
  return out;
}

void expect_same_curve(const std::string& ours, const std::string& theirs, double tolerance, std::size_t gradients) {
  const auto a = rows(ours), b = rows(theirs);
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i]["step"], b[i]["step"]);
    for (const char* key : {"loss", "grad_norm"}) {
      if (i >= gradients && std::string(key) == "grad_norm") continue;
      EXPECT_NEAR(a[i][key].get<double>(), b[i][key].get<double>(), tolerance * (1 + b[i][key].get<double>()))
          << key << " of step " << i + 1;
    }
  }
}

std::string RunTest::train(const std::string& name, const std::vector<std::string>& overrides, const Resume& resume,
                           const std::string& objective) const {
  EXPECT_EQ(Trainer(tiny_config(folder_ / name, overrides, objective), resume).run(), Outcome::finished);
  return folder_ / name;
}

Weights RunTest::fresh(const std::string& name, const std::vector<std::string>& overrides) const {
  const Trainer trainer(tiny_config(folder_ / name, overrides), "none");
  Weights out;
  for (const auto& [key, tensor] : end_of(trainer)) out[key] = tensor.detach().clone();
  return out;
}

Weights end_of(const Trainer& trainer) {
  const TrainingRun& run = trainer.training_run();
  Weights out = collect_weights(*run.model, *run.objective);
  if (run.teacher)
    for (const auto& [name, tensor] : run.teacher->ema.averages()) out["teacher." + name] = tensor;
  return out;
}

}  // namespace tessera
