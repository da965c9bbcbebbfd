#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <nlohmann/json.hpp>

#include "src/measure/machine.h"
#include "src/measure/step_meter.h"
#include "src/measure/synthetic_batch.h"
#include "src/models/autocast.h"
#include "src/report/markdown_table.h"
#include "tools/bench/efficiency.h"
#include "tools/bench/loss_bench.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::bench {
namespace {

using report::three_digits;

/// Measures the cost of a call after a warm-up. `memory` must be created before the model, so that memory.peak() includes the weights.
SampleCost sample_cost(const std::function<void()>& call, const PeakMemory& memory, const EfficiencySettings& s) {
  const auto samples = static_cast<double>(s.step.batch_size);
  SampleCost cost;
  call();
  {
    const FlopCounter flops;
    call();
    synchronize(s.step.device);
    cost.flops = (flops.flops() - flops.recomputed()) / samples;
  }
  cost.memory = memory.peak();
  cost.samples_per_second = samples / median_seconds(s.step.device, call, s.repeats, s.time_limit);
  return cost;
}

void measure_towers(const std::string& configuration, const EfficiencySettings& s, Efficiency& out) {
  const c10::AutoGradMode no_gradients(false);
  const ModelSettings settings = load_model_settings(configuration);
  std::optional<PeakMemory> memory(std::in_place, s.step.device);
  at::manual_seed(0);
  DualEncoder model(settings);
  model.to(s.step.device);
  model.eval();
  out.parameters = count_parameters(model);
  Needs needs;
  if (!model.has_text_tower()) needs.texts.clear();
  Batch batch = synthetic_batch(model, needs, s.step.batch_size, at::kCPU);
  for (auto& [name, view] : batch.texts)
    shorten_texts(view, caption_lengths(s.step.caption_lengths, s.step.batch_size, view.ids.size(-1)));
  batch = batch.to(s.step.device);
  const auto embedding = [&](bool images) {
    return [&, images] {
      const PrecisionScope precision(s.step.device, s.step.dtype);
      if (images)
        model.encode_image(batch.images.begin()->second);
      else
        model.encode_text(batch.texts.begin()->second);
    };
  };
  out.image = sample_cost(embedding(true), *memory, s);
  if (model.has_text_tower()) out.text = sample_cost(embedding(false), *memory, s);
}

void measure_training(const std::string& configuration, const EfficiencySettings& s, Efficiency& out) {
  const PeakMemory memory(s.step.device);
  std::optional<TrainingStep> step;
  try {
    step.emplace(configuration, s.step);
  } catch (const UserError& error) {
    out.why_not_trained = error.what();
    return;
  }
  out.training = sample_cost([&] { step->run(); }, memory, s);
}

std::string millions(std::int64_t count) {
  return three_digits(static_cast<double>(count) / 1e6);
}

nlohmann::ordered_json cost_json(const std::optional<SampleCost>& cost) {
  if (!cost) return nullptr;
  return {{"flops", cost->flops}, {"samples_per_second", cost->samples_per_second}, {"peak_bytes", cost->memory}};
}

/// Adds cells for GFLOPs per sample, samples/s and peak MiB.
void add_cells(std::vector<std::string>& row, const std::optional<SampleCost>& cost, bool with_memory) {
  row.push_back(cost ? three_digits(cost->flops / 1e9) : "-");
  row.push_back(cost ? three_digits(cost->samples_per_second) : "-");
  if (with_memory) row.push_back(cost ? three_digits(static_cast<double>(cost->memory) / (1024.0 * 1024.0)) : "-");
}

}  // namespace

EfficiencyTable measure_efficiency(const EfficiencySettings& s) {
  EfficiencyTable table{s, machine_name(s.step.device), {}};
  for (const std::string& configuration : s.configurations) {
    Efficiency model{.configuration = configuration};
    measure_towers(configuration, s, model);
    if (s.training) measure_training(configuration, s, model);
    if (s.progress)
      s.progress(concat(
          configuration, ": ", three_digits(model.image.samples_per_second), " images/s",
          model.training ? concat(", training ", three_digits(model.training->samples_per_second), " pairs/s") : ""));
    table.models.push_back(std::move(model));
  }
  return table;
}

std::string to_markdown(const EfficiencyTable& table) {
  std::vector<std::string> header = {"configuration",  "parameters (M)",   "image tower (M)",
                                     "text tower (M)", "GFLOPs per image", "images/s",
                                     "GFLOPs per text", "texts/s",         "peak MiB"};
  if (table.settings.training)
    header.insert(header.end(), {"training: GFLOPs per pair", "pairs/s", "peak MiB in training"});
  std::vector<std::vector<std::string>> rows;
  for (const Efficiency& model : table.models) {
    std::vector<std::string> row = {model.configuration, millions(model.parameters.model()),
                                    millions(model.parameters.image),
                                    model.text ? millions(model.parameters.text) : "-"};
    add_cells(row, model.image, false);
    add_cells(row, model.text, false);
    row.push_back(
        three_digits(static_cast<double>((model.text ? *model.text : model.image).memory) / (1024.0 * 1024.0)));
    if (table.settings.training) add_cells(row, model.training, true);
    rows.push_back(std::move(row));
  }
  std::string notes;
  for (const Efficiency& model : table.models)
    if (!model.why_not_trained.empty()) notes += concat("\nNo training step: ", model.why_not_trained, "\n");
  return concat("Machine: ", table.machine, ". ", table.settings.step.batch_size, " samples at a time, ",
                table.settings.step.dtype == at::kBFloat16 ? "bfloat16 (autocast)" : "float32", ", captions ",
                table.settings.step.caption_lengths, ". FLOPs are 2 per multiply-add; peak memory is that of tensors, ",
                "including weights.\n\n") +
         report::markdown_table(header, rows) + notes;
}

std::string to_json(const EfficiencyTable& table) {
  nlohmann::ordered_json json = {{"machine", table.machine},
                                 {"batch_size", table.settings.step.batch_size},
                                 {"models", nlohmann::ordered_json::array()}};
  for (const Efficiency& model : table.models)
    json["models"].push_back({{"configuration", model.configuration},
                              {"parameters", model.parameters.model()},
                              {"image_parameters", model.parameters.image},
                              {"text_parameters", model.parameters.text},
                              {"image", cost_json(model.image)},
                              {"text", cost_json(model.text)},
                              {"training", cost_json(model.training)},
                              {"why_not_trained", model.why_not_trained}});
  return json.dump(1) + "\n";
}

}  // namespace tessera::bench
