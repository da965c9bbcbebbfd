#include <ATen/ATen.h>
#include <nlohmann/json.hpp>
#include <torch/csrc/autograd/autograd.h>

#include "src/measure/machine.h"
#include "src/measure/step_meter.h"
#include "src/models/autocast.h"
#include "src/models/transformer.h"
#include "src/report/markdown_table.h"
#include "tools/bench/parse_shape.h"
#include "tools/bench/readout_bench.h"
#include <tessera/base/text.h>
#include <tessera/models/registry.h>

namespace tessera::bench {
namespace {

struct MeasuredModule {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor(const at::Tensor& tokens)> forward;
};

MeasuredModule measured_block(std::int64_t width) {
  TransformerSettings settings;
  settings.width = width;
  settings.heads = std::max<std::int64_t>(1, width / 64);
  if (width % settings.heads != 0) settings.heads = 1;
  const auto block = std::make_shared<TransformerBlock>(settings, BlockInitialization::image);
  return {"transformer block", block, [block](const at::Tensor& tokens) { return block->forward(tokens); }};
}

MeasuredModule measured_readout(const NamedReadout& named, const TokenShape& shape, SharedParameters& shared) {
  ReadOutContext context;
  context.width = shape.width;
  context.modality = Modality::text;  // text tokens, which have no grid
  context.shared = &shared;
  const auto readout = readouts().make(named.choice, "--readouts", context);
  return {named.label, readout,
          [readout](const at::Tensor& tokens) { return readout->forward({.tokens = tokens}, {}).embedding; }};
}

ReadoutCost measure(const MeasuredModule& measured, const TokenShape& shape, const ReadoutBenchSettings& s) {
  measured.module->to(s.device);
  ReadoutCost cost{measured.name, concat("B=", shape.batch, " N=", shape.tokens, " d=", shape.width)};
  std::vector<at::Tensor> leaves = {at::randn({shape.batch, shape.tokens, shape.width}, s.device).requires_grad_(true)};
  for (const at::Tensor& parameter : measured.module->parameters()) {
    cost.parameters += parameter.numel();
    leaves.push_back(parameter);
  }
  const auto step = [&] {
    at::Tensor out;
    {
      const PrecisionScope precision(s.device, s.dtype);
      out = measured.forward(leaves[0]);
    }
    torch::autograd::grad({out}, leaves, {at::ones_like(out)}, std::nullopt, /*create_graph=*/false,
                          /*allow_unused=*/true);
  };
  step();  // warm-up: operators allocate memory that they reuse later
  {
    const FlopCounter flops;
    const PeakMemory memory(s.device);
    step();
    synchronize(s.device);
    cost.flops = flops.flops();
    cost.memory = memory.peak();
  }
  cost.seconds = median_seconds(s.device, step, s.repeats, s.time_limit);
  return cost;
}

}  // namespace

TokenShape parse_token_shape(const std::string& text) {
  const auto sizes = parse_shape(text, 3, "--shapes", "32x50x768 (B, N, d)");
  return {sizes[0], sizes[1], sizes[2]};
}

NamedReadout parse_readout(const std::string& text) {
  const config::Node node = config::parse_yaml(text, "--readouts");
  NamedReadout out{text, config::Value<config::ModuleSettings>::read(node, "readout", {})};
  readouts().resolve(out.choice, "readout");
  return out;
}

ReadoutBench measure_readouts(const ReadoutBenchSettings& s) {
  ReadoutBench bench{machine_name(s.device), s.dtype, {}};
  for (const TokenShape& shape : s.shapes) {
    const auto add = [&](const MeasuredModule& measured) {
      const ReadoutCost& cost = bench.costs.emplace_back(measure(measured, shape, s));
      if (s.progress) s.progress(concat(cost.name, ", ", cost.shape, ": ", cost.seconds * 1e3, " ms"));
    };
    add(measured_block(shape.width));
    for (const NamedReadout& named : s.readouts) {
      SharedParameters shared;
      add(measured_readout(named, shape, shared));
    }
  }
  return bench;
}

std::string to_markdown(const ReadoutBench& bench) {
  std::vector<std::vector<std::string>> rows;
  for (const ReadoutCost& cost : bench.costs)
    rows.push_back({cost.name, cost.shape, with_thousands(cost.parameters), report::three_digits(cost.flops / 1e9),
                    report::three_digits(cost.seconds * 1e3),
                    report::three_digits(static_cast<double>(cost.memory) / (1024.0 * 1024.0))});
  return "Machine: " + bench.machine + ". " + (bench.dtype == at::kBFloat16 ? "bfloat16 (autocast)" : "float32") +
         ".\n\n" + report::markdown_table({"part", "tokens", "parameters", "GFLOPs", "ms", "peak MiB"}, rows);
}

std::string to_json(const ReadoutBench& bench) {
  nlohmann::ordered_json json = {{"machine", bench.machine}, {"parts", nlohmann::ordered_json::array()}};
  for (const ReadoutCost& cost : bench.costs)
    json["parts"].push_back({{"name", cost.name},
                             {"tokens", cost.shape},
                             {"parameters", cost.parameters},
                             {"flops", cost.flops},
                             {"seconds", cost.seconds},
                             {"peak_bytes", cost.memory}});
  return json.dump(1) + "\n";
}

}  // namespace tessera::bench
