#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/bench/loss_bench.h>
#include <tessera/measure/machine.h>
#include <tessera/measure/step_meter.h>
#include <tessera/objectives/objective.h>

namespace tessera::bench {
namespace {

// Seconds above which the counted run's own time will do: neither counting nor a cold start matters there.
constexpr double kLong = 10;
constexpr const char* kClipFilip = "{name: weighted_sum, objectives: [{name: clip}, {name: filip}]}";

// One objective with its features, ready for any number of forward and backward passes.
class LossStep {
 public:
  LossStep(const NamedObjective& objective, std::int64_t batch, const LossBenchSettings& s)
      : objective_(objectives().make(objective.choice, objective.label, ObjectiveContext{s.width})) {
    at::manual_seed(0);  // the same features for every objective, whatever its parameters
    objective_->to(s.device);
    const Needs needs = objective_->needs();
    const at::TensorOptions options = at::TensorOptions(s.device).dtype(s.dtype);
    const auto leaf = [&](at::IntArrayRef shape) {
      return leaves_.emplace_back(at::randn(shape, options).set_requires_grad(true));
    };
    for (const auto& [view, wanted] : needs.images) {
      TowerFeatures& image = features_.images[view];
      image.global = leaf({batch, s.width});
      if (wanted.tokens) image.tokens = leaf({batch, s.patches, s.width});
    }
    for (const auto& [view, wanted] : needs.texts) {
      TowerFeatures& text = features_.texts[view];
      text.global = leaf({batch, s.width});
      if (wanted.tokens) text.tokens = leaf({batch, s.tokens, s.width});
      text.mask = at::ones({batch, s.tokens}, options.dtype(at::kBool));
    }
    for (const at::Tensor& parameter : objective_->parameters()) leaves_.push_back(parameter);
  }

  void run() {
    for (at::Tensor& leaf : leaves_) leaf.mutable_grad() = at::Tensor();
    objective_->forward(features_, StepContext{}).total.backward();
  }

 private:
  std::shared_ptr<Objective> objective_;
  Features features_;
  std::vector<at::Tensor> leaves_;
};

LossCost measure(const NamedObjective& objective, std::int64_t batch, const LossBenchSettings& s) {
  LossCost cost{objective.label, batch};
  const std::int64_t limit =
      s.memory_limit.value_or(static_cast<std::int64_t>(0.9 * static_cast<double>(available_memory(s.device))));
  const bool fits = fits_in_memory([&] {
    std::optional<LossStep> step;
    {
      const PeakMemory memory(s.device, s.device.is_cpu() ? std::optional(limit) : std::nullopt);
      step.emplace(objective, batch, s);
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
  if (!fits) return {objective.label, batch, Outcome::does_not_fit};
  return cost;
}

// Time grows at most with the square of the batch size.
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

// The features that the model's towers would give.
void follow_model(LossBenchSettings& s) {
  const DualEncoder model(*s.model);
  const config::Size grid = model.grid();
  s.patches = grid.height * grid.width;
  s.width = model.embed_dim();
  if (const config::Node* length = model.settings().text->encoder.settings.find("context_length"))
    s.tokens = config::Value<std::int64_t>::read(*length, "model.text.encoder.context_length", 0);
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
  const auto step = std::make_shared<LossStep>(objective, batch_size, settings);
  return [step] { step->run(); };
}

const LossCost* LossBench::find(const std::string& objective, std::int64_t batch_size) const {
  for (const LossCost& cost : costs)
    if (cost.objective == objective && cost.batch_size == batch_size) return &cost;
  return nullptr;
}

const TowerCost* LossBench::find_towers(const std::string& objective) const {
  for (const TowerCost& cost : towers)
    if (cost.objective == objective) return &cost;
  return nullptr;
}

double step_memory(const TowerCost& towers, const LossCost& loss) {
  return static_cast<double>(towers.state) + towers.activations * static_cast<double>(loss.batch_size) +
         static_cast<double>(loss.memory);
}

double step_flops(const TowerCost& towers, const LossCost& loss) {
  return towers.flops * static_cast<double>(loss.batch_size) + loss.flops;
}

LossBench measure_losses(LossBenchSettings settings) {
  if (settings.model) follow_model(settings);
  LossBench bench{std::move(settings), "", {}, {}};
  const LossBenchSettings& s = bench.settings;
  const auto report = [&](const std::string& line) {
    if (s.progress) s.progress(line);
  };
  bench.machine = machine_name(s.device);
  for (const NamedObjective& objective : s.objectives) {
    if (s.model) {
      report(objective.label + ": towers");
      bench.towers.push_back(measure_towers(*s.model, objective, s.device, s.dtype));
    }
    LossCost last{objective.label};
    for (const std::int64_t batch : s.batch_sizes) {
      const bool measured_before = last.batch_size > 0;
      if (measured_before && last.outcome != Outcome::measured)
        last.batch_size = batch;  // more pairs fit no better
      else if (measured_before && takes_too_long(last, batch, s.time_limit))
        last = {objective.label, batch, Outcome::takes_too_long};
      else
        last = measure(objective, batch, s);
      bench.costs.push_back(last);
      report(progress_line(last));
    }
  }
  return bench;
}

}  // namespace tessera::bench
