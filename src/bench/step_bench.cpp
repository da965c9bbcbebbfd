#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/bench/loss_bench.h>
#include <tessera/bench/step_bench.h>
#include <tessera/measure/machine.h>
#include <tessera/measure/synthetic_batch.h>
#include <tessera/models/autocast.h>
#include <tessera/objectives/objective.h>
#include <tessera/optim/optimizer.h>
#include <tessera/report/markdown_table.h>

namespace tessera::bench {
namespace {

constexpr const char* kDefaultOptimizer = "{name: adamw}";

config::ModuleSettings section(const config::Node& tree, const char* key, const char* otherwise) {
  const config::Node* node = tree.find(key);
  return config::Value<config::ModuleSettings>::read(node != nullptr ? *node : config::parse_yaml(otherwise, key), key,
                                                     {});
}

// What a configuration trains, and a batch for it.
class MeasuredStep {
 public:
  MeasuredStep(const std::string& configuration, const StepBenchSettings& s) : settings_(s) {
    const config::Node tree = config::load_yaml(configuration);
    at::manual_seed(0);
    model_ = std::make_shared<DualEncoder>(load_model_settings(configuration));
    objective_ = objectives().make(section(tree, "objective", "{name: clip}"), "objective",
                                   ObjectiveContext{model_->embed_dim(), &model_->shared()});
    needs_ = objective_->needs();
    if (needs_.teacher())
      user_error(configuration, ": its objective keeps a teacher, which this measurement does not have");
    model_->to(s.device);
    objective_->to(s.device);
    std::vector<NamedParameter> parameters;
    for (const auto& list : {model_->named_parameters(), objective_->named_parameters()})
      for (const auto& item : list) parameters.push_back({item.key(), item.value()});
    optimizer_ = optimizers().make(section(tree, "optimizer", kDefaultOptimizer), "optimizer", parameters);
    batch_ = synthetic_batch(*model_, needs_, s.batch_size, s.device);
  }

  bool has_several_views() const { return needs_.images.size() > 1 || needs_.texts.size() > 1; }
  std::int64_t parameters() const {
    std::int64_t count = 0;
    for (const NamedParameter& parameter : optimizer_->parameters()) count += parameter.tensor.numel();
    return count;
  }

  void run(bool views_joined) {
    for (const NamedParameter& parameter : optimizer_->parameters()) parameter.tensor.mutable_grad() = at::Tensor();
    objective_->forward(encode(views_joined), {}).total.backward();
    optimizer_->step(optimizer_->peak_learning_rate());
  }

 private:
  Features encode(bool views_joined) {
    std::optional<Autocast> autocast;
    if (settings_.dtype == at::kBFloat16) autocast.emplace(settings_.device.type());
    if (views_joined) return model_->forward(batch_, needs_);
    Features out;
    for (const auto& [name, view] : needs_.images)
      out.images[name] = model_->encode_image(batch_.images.at(name), view);
    for (const auto& [name, view] : needs_.texts) out.texts[name] = model_->encode_text(batch_.texts.at(name), view);
    out.duplicates = batch_.duplicates;
    return out;
  }

  const StepBenchSettings& settings_;
  std::shared_ptr<DualEncoder> model_;
  std::shared_ptr<Objective> objective_;
  std::shared_ptr<Optimizer> optimizer_;
  Needs needs_;
  Batch batch_;
};

StepCost measure(MeasuredStep& step, const std::string& configuration, bool views_joined, const StepBenchSettings& s) {
  StepCost cost{configuration, views_joined, step.parameters()};
  step.run(views_joined);  // the optimizer's state, and what operators keep from their first call on
  {
    const FlopCounter flops;
    const PeakMemory memory(s.device);
    step.run(views_joined);
    synchronize(s.device);
    cost.flops = flops.flops();
    cost.memory = memory.peak();
  }
  cost.seconds = median_seconds(
      s.device, [&] { step.run(views_joined); }, s.repeats, s.time_limit);
  if (s.progress) s.progress(concat(configuration, ": ", cost.seconds * 1e3, " ms"));
  return cost;
}

}  // namespace

StepBench measure_steps(const StepBenchSettings& s) {
  StepBench bench{s, machine_name(s.device), {}};
  for (const std::string& configuration : s.configurations) {
    MeasuredStep step(configuration, s);
    bench.costs.push_back(measure(step, configuration, /*views_joined=*/true, s));
    if (step.has_several_views()) bench.costs.push_back(measure(step, configuration, /*views_joined=*/false, s));
  }
  return bench;
}

std::string to_markdown(const StepBench& bench) {
  std::vector<std::vector<std::string>> rows;
  for (const StepCost& cost : bench.costs)
    rows.push_back({cost.configuration + (cost.views_joined ? "" : ", views one by one"),
                    with_thousands(cost.parameters), report::three_digits(cost.flops / 1e12),
                    report::three_digits(static_cast<double>(cost.memory) / (1024.0 * 1024.0)),
                    report::three_digits(cost.seconds * 1e3),
                    report::three_digits(static_cast<double>(bench.settings.batch_size) / cost.seconds),
                    report::three_digits(cost.seconds / bench.costs[0].seconds)});
  return concat("Machine: ", bench.machine, ". ", bench.settings.batch_size, " pairs, ",
                bench.settings.dtype == at::kBFloat16 ? "bfloat16 (autocast)" : "float32", ".\n\n") +
         report::markdown_table(
             {"configuration", "parameters", "TFLOPs", "peak MiB", "ms a step", "pairs/s", "time over the first's"},
             rows);
}

std::string to_json(const StepBench& bench) {
  nlohmann::ordered_json json = {{"machine", bench.machine},
                                 {"batch_size", bench.settings.batch_size},
                                 {"steps", nlohmann::ordered_json::array()}};
  for (const StepCost& cost : bench.costs)
    json["steps"].push_back({{"configuration", cost.configuration},
                             {"views_joined", cost.views_joined},
                             {"parameters", cost.parameters},
                             {"flops", cost.flops},
                             {"seconds", cost.seconds},
                             {"peak_bytes", cost.memory}});
  return json.dump(1) + "\n";
}

}  // namespace tessera::bench
