#include <ATen/ATen.h>

#include "src/measure/machine.h"
#include "src/measure/step_meter.h"
#include "src/measure/synthetic_batch.h"
#include "src/models/autocast.h"
#include "tools/bench/loss_bench.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/objectives/make_objective.h>
#include <tessera/objectives/objective.h>

namespace tessera::bench {
namespace {

constexpr std::int64_t kVocabulary = 49408;  // number of token ids if there is no model
constexpr std::int64_t kPairs = 2;
constexpr const char* kClipFilip = "{name: weighted_sum, objectives: [{name: clip}, {name: filip}]}";

// An objective, and features of two pairs in the shapes that the objective needs.
struct Subject {
  std::shared_ptr<Objective> objective;
  Features features;
};

// Returns the features of a view with `tokens` tokens. The settings give the features' width.
TowerFeatures features_of_view(const ViewNeeds& wanted, TowerInput input, std::int64_t tokens, const LossBenchSettings& s) {
  constexpr std::int64_t kSlots = 8;
  const at::TensorOptions options(s.device);
  TowerFeatures out;
  out.global = at::zeros({kPairs, s.width}, options);
  if (wanted.tokens) out.tokens = at::zeros({kPairs, tokens, s.width}, options);
  if (wanted.encoder_tokens) out.encoder_tokens = at::zeros({kPairs, tokens, s.width}, options);
  if (wanted.dense) out.dense = at::zeros({kPairs, tokens, s.width}, options);
  if (wanted.slots) out.slots = at::zeros({kPairs, kSlots, s.width}, options);
  if (wanted.attention) out.attention = at::zeros({kPairs, kSlots, tokens}, options);
  if (wanted.boxes)
    out.boxes = {at::tensor({0.25, 0.25, 0.75, 0.75}, options).to(at::kFloat).expand({kPairs, s.captions, 4}),
                 at::ones({kPairs, s.captions}, options.dtype(at::kBool))};
  if (wanted.hidden.share > 0)
    input.hidden = (at::arange(tokens, options) < wanted.hidden.share * static_cast<double>(tokens)).expand({kPairs, -1});
  const Encoded encoded{.tokens = at::zeros({kPairs, tokens, s.width}, options)};
  for (const auto& [name, extra] : wanted.extras) out.extras[name] = extra.compute(input, encoded);
  return out;
}

TowerFeatures features_of_text(const ViewNeeds& wanted, const LossBenchSettings& s) {
  const at::Tensor ids = at::zeros({kPairs, s.tokens}, at::TensorOptions(s.device).dtype(at::kLong));
  const TowerInput input = text_input(ids, at::ones_like(ids, at::kBool));
  TowerFeatures out = features_of_view(wanted, input, s.tokens, s);
  out.mask = input.mask;
  if (wanted.input_ids) out.input = input;
  return out;
}

// Returns the features [kPairs, K, ...] of a view with several texts per image; all texts are present.
TowerFeatures features_of_texts(const ViewNeeds& wanted, const LossBenchSettings& s) {
  TowerFeatures out = map_tensors(features_of_text(wanted, s), [&](const at::Tensor& tensor) {
    std::vector<std::int64_t> shape = tensor.sizes().vec();
    shape.insert(shape.begin() + 1, s.captions);
    return tensor.unsqueeze(1).expand(shape).contiguous();
  });
  out.present = at::ones(out.global.sizes().slice(0, 2), at::TensorOptions(s.device).dtype(at::kBool));
  return out;
}

// Returns what a teacher would give for a view: features like the student's, or stored embeddings of the width that the objective needs.
TowerFeatures taught_view(const TowerFeatures& student, const ViewNeeds& wanted) {
  if (wanted.taught == 0) return student;
  TowerFeatures out;
  std::vector<std::int64_t> sizes = student.global.sizes().vec();
  sizes.back() = wanted.taught;
  out.global = at::randn(sizes, student.global.options().requires_grad(false));
  return out;
}

Subject make_subject(const NamedObjective& named, const LossBenchSettings& s, DualEncoder* model) {
  SharedParameters shared;
  ObjectiveContext context{.embed_dim = s.width, .image_width = s.width, .vocab_size = kVocabulary};
  if (model != nullptr) {
    context = objective_context(*model);
    shared = model->shared();
  }
  context.shared = &shared;
  Subject out;
  out.objective = make_objective(named.choice, named.label, context);
  out.objective->to(s.device);
  const Needs needs = out.objective->needs();
  if (model != nullptr) {
    const at::NoGradGuard no_grad;
    // Includes the views that only the teacher needs, because this benchmark uses the model's features as the teacher's.
    Needs of_model = needs;
    for (auto& [view, wanted] : of_model.images) wanted.student = true;
    out.features = model->forward(synthetic_batch(*model, needs, 2, s.device), of_model);
  } else {
    const TowerInput pixels = image_input(at::zeros({kPairs, 3, 224, 224}, at::TensorOptions(s.device)));
    for (const auto& [view, wanted] : needs.images) out.features.images[view] = features_of_view(wanted, pixels, s.patches, s);
    for (const auto& [view, wanted] : needs.texts)
      out.features.texts[view] = holds_several_texts(view) ? features_of_texts(wanted, s) : features_of_text(wanted, s);
    out.features.extras = example_extras(needs, kPairs, s.device);
    const at::Tensor apart = at::arange(2, at::TensorOptions(s.device));
    if (needs.duplicates) out.features.duplicates = {apart, apart, at::arange(2 * s.captions, apart.options()).view({2, s.captions})};
  }
  for (const auto& [view, wanted] : needs.images)
    if (wanted.teacher || wanted.taught > 0) out.features.teacher_images[view] = taught_view(out.features.images.at(view), wanted);
  for (const auto& [view, wanted] : needs.texts)
    if (wanted.teacher || wanted.taught > 0) out.features.teacher_texts[view] = taught_view(out.features.texts.at(view), wanted);
  out.features = map_tensors(
      out.features, [&](const at::Tensor& tensor) { return tensor.is_floating_point() ? tensor.to(s.dtype) : tensor; });
  return out;
}

// Runs forward and backward passes of an objective on random features of a batch.
class LossStep {
 public:
  LossStep(const Subject& subject, std::int64_t batch) : objective_(subject.objective) {
    at::manual_seed(0);
    const Features given = repeated_leaves(subject.features, batch);
    features_ = map_tensors(given, [&](const at::Tensor& tensor) {
      return tensor.is_floating_point() ? at::randn_like(tensor) : tensor;
    });
    for (auto& [name, view] : features_.images) view.boxes = given.images.at(name).boxes;
    require_gradients(features_);
    for_each_tensor(features_, [&](const at::Tensor& tensor) {
      if (tensor.defined() && tensor.requires_grad()) leaves_.push_back(tensor);
    });
    for (const at::Tensor& parameter : objective_->parameters()) leaves_.push_back(parameter);
  }

  void run() {
    for (at::Tensor& leaf : leaves_) leaf.mutable_grad() = at::Tensor();
    StepContext context;
    context.teacher = objective_.get();
    context.teacher_scale = kTeacherScale;
    objective_->forward(features_, context).total.backward();
  }

 private:
  std::shared_ptr<Objective> objective_;
  Features features_;
  std::vector<at::Tensor> leaves_;
};

LossCost measure(const std::string& label, const Subject& subject, std::int64_t batch, const LossBenchSettings& s) {
  LossCost cost{label, batch};
  const std::int64_t limit =
      s.memory_limit.value_or(static_cast<std::int64_t>(0.9 * static_cast<double>(available_memory(s.device))));
  const bool fits = fits_in_memory([&] {
    std::optional<LossStep> step;
    {
      const PeakMemory memory(s.device, s.device.is_cpu() ? std::optional(limit) : std::nullopt);
      step.emplace(subject, batch);
      const std::int64_t features = memory.held();
      const FlopCounter flops;
      step->run();
      synchronize(s.device);
      cost.flops = flops.flops();
      cost.memory = memory.peak() - features;
    }
    cost.seconds = median_seconds(
        s.device, [&] { step->run(); }, s.repeats, s.time_limit);
  });
  if (!fits) return {label, batch, Outcome::does_not_fit};
  return cost;
}

// Predicts whether a larger batch takes too long, assuming that time grows at most with the square of the batch size.
bool takes_too_long(const LossCost& smaller, std::int64_t batch, double limit) {
  const double growth = static_cast<double>(batch) / static_cast<double>(smaller.batch_size);
  return smaller.seconds * growth * growth > limit;
}

std::string progress_line(const LossCost& cost) {
  const std::string name = cost.objective + ", batch " + std::to_string(cost.batch_size) + ": ";
  if (cost.outcome == Outcome::does_not_fit) return name + "does not fit";
  if (cost.outcome == Outcome::takes_too_long) return name + "would take too long";
  return name + format_bytes(static_cast<double>(cost.memory)) + ", " + concat(cost.seconds * 1e3) + " ms";
}

ModelCost measure_model(const std::string& label, DualEncoder& model, const Objective& objective,
                        const LossBenchSettings& s) {
  ModelCost cost;
  cost.objective = label;
  for (const std::vector<at::Tensor>& parameters : {model.parameters(), objective.parameters()}) {
    for (const at::Tensor& parameter : parameters) {
      cost.parameters += parameter.numel();
      cost.state += 4 * static_cast<std::int64_t>(parameter.nbytes());
    }
  }
  const Needs needs = objective.needs();
  for (const std::int64_t pairs : {1, 2}) {
    model.zero_grad();
    measure_towers(cost.towers, synthetic_batch(model, needs, pairs, s.device), [&](const Batch& batch) {
      const PrecisionScope precision(s.device, s.dtype);
      return model.forward(batch, needs);
    });
  }
  return cost;
}

}  // namespace

NamedObjective parse_objective(const std::string& text) {
  const config::Node node = config::parse_yaml(text == "clip_filip" ? kClipFilip : text, "--objectives");
  config::ModuleSettings choice = config::Value<config::ModuleSettings>::read(node, "objective", {});
  objectives().resolve(choice, "objective");
  return {text, std::move(choice)};
}

std::function<void()> loss_step(const NamedObjective& objective, std::int64_t batch_size,
                                const LossBenchSettings& settings) {
  const auto step = std::make_shared<LossStep>(make_subject(objective, settings, nullptr), batch_size);
  return [step] { step->run(); };
}

const LossCost* LossBench::find(const std::string& objective, std::int64_t batch_size) const {
  for (const LossCost& cost : costs)
    if (cost.objective == objective && cost.batch_size == batch_size) return &cost;
  return nullptr;
}

const ModelCost* LossBench::find_model(const std::string& objective) const {
  for (const ModelCost& cost : models)
    if (cost.objective == objective) return &cost;
  return nullptr;
}

double step_memory(const ModelCost& model, const LossCost& loss) {
  return static_cast<double>(model.state + loss.memory) + model.towers.forward.trace(loss.batch_size).held();
}

double step_flops(const ModelCost& model, const LossCost& loss) {
  return model.towers.flops(loss.batch_size) + loss.flops;
}

ModelSettings load_model_settings(const std::string& path) {
  const config::Node tree = config::load_yaml(path);
  const config::Node* model = tree.find("model");
  if (model == nullptr)
    user_error(path, ": model: missing; a configuration of trainer such as configs/sparc/vitb16.yaml has it");
  return resolve(config::read<ModelSettings>(*model, "model"), "model");
}

LossBench measure_losses(LossBenchSettings settings) {
  std::optional<DualEncoder> model;
  if (settings.model) {
    model.emplace(*settings.model);
    model->to(settings.device);
    settings.patches = model->grid().height * model->grid().width;
    settings.width = model->embed_dim();
    if (model->has_text_tower()) settings.tokens = model->text_tower().encoder().context_length();
  }
  LossBench bench{std::move(settings), "", {}, {}};
  const LossBenchSettings& s = bench.settings;
  const auto report = [&](const std::string& line) {
    if (s.progress) s.progress(line);
  };
  bench.machine = machine_name(s.device);
  for (const NamedObjective& objective : s.objectives) {
    const Subject subject = make_subject(objective, s, model ? &*model : nullptr);
    if (model) {
      report(objective.label + ": towers");
      bench.models.push_back(measure_model(objective.label, *model, *subject.objective, s));
    }
    LossCost last{objective.label};
    for (const std::int64_t batch : s.batch_sizes) {
      const bool measured_before = last.batch_size > 0;
      if (measured_before && last.outcome != Outcome::measured)
        last.batch_size = batch;  // if a batch did not fit, larger ones will not fit either
      else if (measured_before && takes_too_long(last, batch, s.time_limit))
        last = {objective.label, batch, Outcome::takes_too_long};
      else
        last = measure(objective.label, subject, batch, s);
      bench.costs.push_back(last);
      report(progress_line(last));
    }
  }
  return bench;
}

}  // namespace tessera::bench
