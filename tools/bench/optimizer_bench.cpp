#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "src/measure/machine.h"
#include "src/report/markdown_table.h"
#include "tools/bench/optimizer_bench.h"
#include <tessera/base/text.h>

namespace tessera::bench {

OptimizerStep::OptimizerStep(const ModelSettings& model, const config::ModuleSettings& choice, const at::Device& device) {
  at::manual_seed(0);
  DualEncoder towers(model);
  towers.to(device);
  std::vector<NamedParameter> parameters;
  for (const auto& [name, tensor] : towers.state_dict()) {
    if (!tensor.requires_grad()) continue;
    tensor.mutable_grad() = at::randn_like(tensor, tensor.options().requires_grad(false)) * 1e-3;
    parameters.push_back({name, tensor});
  }
  optimizer_ = optimizers().make(choice, "optimizer", parameters);
}

config::ModuleSettings parse_optimizer(const std::string& text) {
  const config::Node node = config::parse_yaml(text, "--optimizers");
  config::ModuleSettings choice = config::Value<config::ModuleSettings>::read(node, "optimizer", {});
  optimizers().resolve(choice, "optimizer");
  return choice;
}

OptimizerBench measure_optimizers(const OptimizerBenchSettings& settings) {
  OptimizerBench bench{machine_name(settings.device), {}};
  for (const config::ModuleSettings& choice : settings.optimizers) {
    OptimizerStep step(settings.model, choice, settings.device);
    OptimizerCost cost{choice.name, std::ssize(step.optimizer().parameters())};
    for (const NamedParameter& parameter : step.optimizer().parameters()) cost.parameters += parameter.tensor.numel();
    cost.seconds = median_seconds(
        settings.device, [&] { step.run(); }, settings.repeats, settings.time_limit);
    bench.costs.push_back(cost);
  }
  return bench;
}

std::string to_markdown(const OptimizerBench& bench) {
  std::vector<std::vector<std::string>> rows;
  for (const OptimizerCost& cost : bench.costs)
    rows.push_back({cost.optimizer, std::to_string(cost.tensors), with_thousands(cost.parameters),
                    report::three_digits(cost.seconds * 1e3),
                    report::three_digits(static_cast<double>(cost.parameters) / cost.seconds / 1e9)});
  return "Machine: " + bench.machine + ". float32.\n\n" +
         report::markdown_table({"optimizer", "tensors", "parameters", "ms per step", "1e9 parameters/s"}, rows);
}

std::string to_json(const OptimizerBench& bench) {
  nlohmann::ordered_json json = {{"machine", bench.machine}, {"optimizers", nlohmann::ordered_json::array()}};
  for (const OptimizerCost& cost : bench.costs)
    json["optimizers"].push_back({{"optimizer", cost.optimizer},
                                  {"tensors", cost.tensors},
                                  {"parameters", cost.parameters},
                                  {"seconds", cost.seconds}});
  return json.dump(1) + "\n";
}

std::string parameters_json(const Optimizer& optimizer) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < optimizer.parameters().size(); ++i) {
    const NamedParameter& parameter = optimizer.parameters()[i];
    json.push_back({{"name", parameter.name},
                    {"shape", parameter.tensor.sizes().vec()},
                    {"weight_decay", optimizer.weight_decay(i)}});
  }
  return json.dump();
}

}  // namespace tessera::bench
