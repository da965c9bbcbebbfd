#include <algorithm>
#include <array>
#include <random>
#include <tuple>

#include <ATen/ATen.h>

#include "src/measure/synthetic_batch.h"
#include "src/models/autocast.h"
#include "src/ops/weight_copies.h"
#include "tools/bench/loss_bench.h"
#include "tools/bench/training_step.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/io/safetensors.h>
#include <tessera/models/model_file.h>
#include <tessera/objectives/make_objective.h>
#ifdef TESSERA_WITH_DATA
#include "src/data/image/image_views.h"
#include <tessera/data/loading/loader.h>
#endif

namespace tessera::bench {
namespace {

// The lengths of COCO captions: how many captions per 1,000 have 9, 10, ... tokens with CLIP's tokenizer, including the start and end
// tokens. Measured on the 795 captions of COCO-MINI's 159 images. These captions have 13.7 tokens on average.
constexpr std::int64_t kShortestOfCoco = 9;
constexpr std::array<double, 21> kCocoLengths = {5, 31, 132, 203, 170, 176, 109, 72, 34, 19, 15,
                                                 9, 3,  8,   3,   8,   0,   0,   0,  3,  0};

std::int64_t number(const std::string& text) {
  const bool digits = !text.empty() && text.size() < 7 && text.find_first_not_of("0123456789") == std::string::npos;
  return digits ? std::stoll(text) : 0;
}

config::ModuleSettings section(const config::Node& tree, const char* key, const char* otherwise) {
  const config::Node* node = tree.find(key);
  return config::Value<config::ModuleSettings>::read(node != nullptr ? *node : config::parse_yaml(otherwise, key), key,
                                                     {});
}

std::optional<double> clip_norm_of(const config::Node& tree) {
  const config::Node* training = tree.find("training");
  const config::Node* value = training != nullptr ? training->find("clip_norm") : nullptr;
  if (value == nullptr) return std::nullopt;
  return config::Value<std::optional<double>>::read(*value, "training.clip_norm", {});
}

// Returns the type of the image encoder's residual stream (training.residual).
at::ScalarType residual_of(const config::Node& tree) {
  const config::Node* training = tree.find("training");
  const config::Node* value = training != nullptr ? training->find("residual") : nullptr;
  return value != nullptr && value->text() == "bfloat16" ? at::kBFloat16 : at::kFloat;
}

// Returns a tensor of a file. Throws UserError unless the tensor has the expected number of dimensions, and one row for each sample of
// the batch.
at::Tensor tensor_of(const io::TensorFile& file, const std::string& path, const std::string& name,
                     std::int64_t dimensions, std::int64_t rows) {
  const auto found = file.tensors.find(name);
  if (found == file.tensors.end()) user_error(path, ": no tensor named ", name, ": a batch has image, text and lengths");
  if (found->second.dim() != dimensions || found->second.size(0) != rows)
    user_error(path, ": tensor ", name, " is ", found->second.sizes(), ", but ", dimensions,
               " dimensions and ", rows, " rows (--batch-size) are expected");
  return found->second;
}

}  // namespace

std::vector<std::int64_t> caption_lengths(const std::string& text, std::int64_t count, std::int64_t most) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(count), most);
  if (text == "full") return out;
  std::mt19937_64 random(0);
  if (text == "coco") {
    std::discrete_distribution<std::int64_t> drawn(kCocoLengths.begin(), kCocoLengths.end());
    for (std::int64_t& length : out) length = std::min(most, kShortestOfCoco + drawn(random));
    return out;
  }
  const std::vector<std::string> ends = split(text, ':');
  const std::int64_t least = number(ends.front()), longest = number(ends.back());
  if (ends.size() > 2 || least < 1 || longest < least || longest > most)
    user_error("--caption-lengths ", text, ": expected full, coco, or numbers of tokens between 1 and ", most,
               " such as 12 or 9:20");
  std::uniform_int_distribution<std::int64_t> drawn(least, longest);
  for (std::int64_t& length : out) length = drawn(random);
  return out;
}

TrainingStep::TrainingStep(const std::string& configuration, const TrainingStepSettings& s) : settings_(s) {
  const config::Node tree = config::load_yaml(configuration);
  at::manual_seed(0);
  const auto build = [&] {
    auto model = std::make_shared<DualEncoder>(load_model_settings(configuration));
    auto objective = make_objective(section(tree, "objective", "{name: clip}"), "objective", objective_context(*model));
    model->to(s.device);
    objective->to(s.device);
    return std::pair{std::move(model), std::move(objective)};
  };
  std::tie(model_, objective_) = build();
  if (!s.weights.empty()) model_->load_state(io::load_safetensors(s.weights).tensors, s.weights);
  model_->image_tower().encoder().set_residual_type(residual_of(tree));
  needs_ = objective_->needs();
  if (needs_.teacher() && needs_.teacher_model) {
    if (needs_.teacher_model->empty()) user_error(configuration, ": objective.teacher is not set: name the model that the step learns from");
    const std::string path = find_model_file(*needs_.teacher_model);
    teacher_ = std::make_unique<Teacher>(frozen_teacher(build_model(load_model_file(path), path), kTeacherScale));
    teacher_->model->to(s.device);
    context_.teacher_scale = kTeacherScale;
  } else if (needs_.teacher()) {
    auto [model, objective] = build();
    teacher_ = std::make_unique<Teacher>(make_teacher(std::move(model), std::move(objective), *model_, *objective_));
    context_.teacher = teacher_->objective.get();
  }
  std::vector<NamedParameter> parameters;
  for (const auto& list : {model_->named_parameters(), objective_->named_parameters()})
    for (const auto& item : list) parameters.push_back({item.key(), item.value()});
  DistributedSettings distributed;
  distributed.backend = s.backend;
  group_ = ProcessGroup::connect(LaunchEnvironment{}, distributed, s.device);
  context_.group = group_;
  optimizer_ = optimizers().make(section(tree, "optimizer", "{name: adamw}"), "optimizer", parameters);
  std::vector<at::Tensor> trained;
  for (const NamedParameter& parameter : optimizer_->parameters()) trained.push_back(parameter.tensor);
  reducer_ = std::make_unique<GradientReducer>(trained, group_, distributed.bucket_mb);
  norm_groups_ = grad_norm_groups(*optimizer_);
  clip_norm_ = clip_norm_of(tree);
  batch_ = make_synthetic_batch(tree);
  for (auto& [name, view] : batch_.texts)
    shorten_texts(view, caption_lengths(s.caption_lengths, s.batch_size, view.ids.size(-1)));
  if (!s.batch.empty()) take_batch(s.batch);
  batch_ = batch_.to(s.device);
}

std::function<void()> image_forward(const std::string& configuration, const TrainingStepSettings& s) {
  at::manual_seed(0);
  const auto model = std::make_shared<DualEncoder>(load_model_settings(configuration));
  model->to(s.device);
  model->eval();
  const TowerInput images = synthetic_batch(*model, Needs{}, s.batch_size, s.device).images.begin()->second;
  return [model, images, s] {
    const at::NoGradGuard no_grad;
    const PrecisionScope precision(s.device, s.dtype);
    model->encode_image(images);
  };
}

/// Returns a synthetic batch. The number of texts per image and the crop sizes are as in the configuration's data pipeline.
Batch TrainingStep::make_synthetic_batch([[maybe_unused]] const config::Node& tree) const {
  std::map<std::string, config::Size> sizes;
  std::map<std::string, std::int64_t> texts;
#ifdef TESSERA_WITH_DATA
  const config::Node* data = tree.find("data");
  if (const config::Node* node = data == nullptr ? nullptr : data->find("loader")) {
    const auto loader = config::Value<LoaderSettings>::read(*node, "data.loader", {});
    sizes = image_view_sizes(model_->settings().preprocessing, loader, needs_);
    texts = texts_per_image(loader);
  }
#endif
  return synthetic_batch(*model_, needs_, settings_.batch_size, at::kCPU, sizes, texts);
}

void TrainingStep::take_batch(const std::string& path) {
  const io::TensorFile file = io::load_safetensors(path);
  for (auto& [name, view] : batch_.images)
    if (view.pixels.defined()) view.pixels = tensor_of(file, path, "image", 4, settings_.batch_size);
  for (auto& [name, view] : batch_.texts) {
    view.ids = tensor_of(file, path, "text", 2, settings_.batch_size).to(at::kLong);
    const at::Tensor lengths = tensor_of(file, path, "lengths", 1, settings_.batch_size).to(at::kLong);
    if (lengths.min().item<std::int64_t>() < 0 || lengths.max().item<std::int64_t>() > view.ids.size(1))
      user_error(path, ": tensor lengths must be between 0 and the ", view.ids.size(1), " columns of text");
    const auto* values = lengths.const_data_ptr<std::int64_t>();
    shorten_texts(view, {values, values + lengths.size(0)});
  }
}

std::int64_t TrainingStep::parameters() const {
  std::int64_t count = 0;
  for (const NamedParameter& parameter : optimizer_->parameters()) count += parameter.tensor.numel();
  return count;
}

bool TrainingStep::can_be_recorded() const {
  return settings_.device.is_cuda() && group_.alone() && !teacher_ && !objective_->follows_step();
}

std::map<std::string, TowerFeatures> TrainingStep::encode(const Batch& batch, bool images, bool views_joined) {
  const PrecisionScope precision(settings_.device, settings_.dtype);
  const auto& views = images ? needs_.images : needs_.texts;
  if (views_joined) {
    Needs of_one_kind;
    of_one_kind.images.clear();
    of_one_kind.texts.clear();
    (images ? of_one_kind.images : of_one_kind.texts) = views;
    const Features features = model_->forward(batch, of_one_kind);
    return images ? features.images : features.texts;
  }
  std::map<std::string, TowerFeatures> out;
  for (const auto& [name, view] : views) {
    if (!view.student) continue;
    out[name] =
        images ? model_->encode_image(batch.images.at(name), view) : model_->encode_text(batch.texts.at(name), view);
  }
  return out;
}

namespace {

void through(const TrainingStep::How& how, const char* phase) {
  if (how.on_phase) how.on_phase(phase);
}

}  // namespace

void TrainingStep::refresh_copies() {
  if (WeightCopies* copies = optimizer_->weight_copies()) copies->refresh();
}

Losses TrainingStep::forward(const Batch& batch, const How& how) {
  const WeightCopies::Scope copied(optimizer_->weight_copies());
  Features features;
  features.duplicates = batch.duplicates;
  add_taught(batch, needs_, features);
  features.images = encode(batch, /*images=*/true, how.views_joined);
  through(how, "image tower");
  features.texts = encode(batch, /*images=*/false, how.views_joined);
  through(how, "text tower");
  if (teacher_) {
    const PrecisionScope precision(settings_.device, settings_.dtype);
    add_teacher_features(*teacher_, batch, needs_, features);
    through(how, "teacher");
  }
  Losses losses = objective_->forward(features, context_);
  through(how, "objective");
  return losses;
}

void TrainingStep::update(const How& how) {
  const GradientNorms norms = clip_norm_ ? clip_gradients(*optimizer_, norm_groups_, clip_norm_) : GradientNorms{};
  through(how, "clipping");
  optimizer_->step({optimizer_->peak_learning_rate(), {}, {}, norms.factor, {}});
  objective_->after_step(context_);
  if (teacher_) teacher_->ema.update_with(objective_->teacher_momentum(context_));
  through(how, "update");
}

at::Tensor TrainingStep::run(const How& how) {
  optimizer_->zero_grad();
  refresh_copies();
  const at::Tensor loss = forward(batch_, how).total;
  reducer_->backward(loss, how.reduce ? BackwardPass::last : BackwardPass::some);
  through(how, "backward");
  update(how);
  return loss.detach();
}

at::Tensor TrainingStep::run_recorded() {
  if (!graph_) {
    std::vector<at::Tensor> trained;
    for (const NamedParameter& parameter : optimizer_->parameters()) trained.push_back(parameter.tensor);
    graph_ = std::make_unique<StepGraph>(make_cuda_recorder(), std::move(trained), StepGraph::Update::one_batch, [this](const GraphInputs& inputs) {
      Losses losses = forward(inputs.batch, {});
      reducer_->backward(losses.total, BackwardPass::some);
      return losses;
    });
  }
  graph_->zero_gradients();
  refresh_copies();
  const at::Tensor loss = graph_->run({batch_, {}, {}, {}}).total.detach();
  update({});
  return loss;
}

}  // namespace tessera::bench
