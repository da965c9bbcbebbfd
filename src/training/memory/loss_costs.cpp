#include "src/training/memory/loss_costs.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include <ATen/ATen.h>

#include <tessera/measure/machine.h>
#include "src/training/memory/sample_batch.h"
#include <tessera/measure/step_meter.h>

namespace tessera {
namespace {

constexpr double kLossSeconds = 1;  // that the next measurement may take

// The same settings with every chunk made smaller.
config::Node chunks_scaled(const config::Node& node, double factor) {
  if (node.is_sequence()) {
    std::vector<config::Node> items;
    for (const config::Node& item : node.items()) items.push_back(chunks_scaled(item, factor));
    return config::Node::sequence(std::move(items), node.mark());
  }
  if (!node.is_map()) return node;
  config::Node out = config::Node::map({}, node.mark());
  for (const auto& [key, value] : node.members()) {
    if (key == "chunk" && value.is_scalar()) {
      const double chunk = factor * static_cast<double>(config::Value<std::int64_t>::read(value, key, 1));
      out.set(key, config::Node::scalar(std::to_string(std::max<std::int64_t>(1, std::llround(chunk)))));
    } else {
      out.set(key, chunks_scaled(value, factor));
    }
  }
  return out;
}

}  // namespace

std::optional<std::int64_t> greatest_chunk(const config::Node& settings) {
  std::optional<std::int64_t> greatest;
  const auto note = [&](const std::optional<std::int64_t>& found) {
    if (found) greatest = std::max(*found, greatest.value_or(0));
  };
  if (settings.is_sequence())
    for (const config::Node& item : settings.items()) note(greatest_chunk(item));
  if (settings.is_map())
    for (const auto& [key, value] : settings.members())
      note(key == "chunk" && value.is_scalar() ? std::optional(config::Value<std::int64_t>::read(value, key, 1))
                                               : greatest_chunk(value));
  return greatest;
}

LossCosts::LossCosts(TrainingRun& run, const config::ModuleSettings& settings, const Features& features, const ProcessGroup& group,
                     std::int64_t most_samples)
    : run_(run), settings_(settings), features_(features), group_(group), most_samples_(most_samples) {}

LossCosts::Measured LossCosts::measure(Objective& objective, std::int64_t samples, CostCurve* curve) {
  const Features leaves = repeated_leaves(features_, samples);
  StepContext context;
  if (run_.teacher) context.teacher = run_.teacher->objective.get();
  context.group = group_;
  const FlopCounter counter;
  const auto begin = std::chrono::steady_clock::now();
  double forward_flops = 0;
  MemoryTrace trace = MemoryTrace::of([&] {
    const Losses losses = objective.forward(leaves, context);
    forward_flops = counter.flops();
    losses.total.backward();
    synchronize(run_.device);
  });
  const Measured out{trace.peak(), std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
  if (curve == nullptr) return out;
  curve->add(samples, std::move(trace), counter.flops(), out.seconds);
  forward_.add(samples, {}, forward_flops);
  return out;
}

std::int64_t LossCosts::measure_upwards(std::int64_t batch) {
  const double room = static_cast<double>(available_memory(run_.device)) / 4;
  Objective& objective = *run_.objective;
  std::int64_t samples = std::min<std::int64_t>(batch, 4);
  while (true) {
    const Measured cost = measure(objective, samples, &curve_);
    const std::int64_t next = std::min(batch, 2 * samples);
    const bool enough = most_samples_ > 0 && next > most_samples_;
    if (samples == batch || enough || 4 * cost.seconds > kLossSeconds || 4 * cost.peak > room) return samples;
    samples = next;
  }
}

LossCosts::Cost LossCosts::at(std::int64_t batch) {
  if (curve_.measured(batch)) return {curve_.peak(batch), forward_.flops(batch), curve_.flops(batch), true};
  const std::int64_t most = measure_upwards(batch);
  if (most == batch) return at(batch);
  // Three numbers in a row of one regime, all of whole chunks where the loss is cut.
  const std::optional<std::int64_t> chunk = greatest_chunk(settings_.settings);
  const std::int64_t unit = chunk && 4 * *chunk <= most ? *chunk : 1;
  for (const std::int64_t quarters : {2, 3, 4}) measure(*run_.objective, quarters * most / 4 / unit * unit, &curve_);
  Cost cost{curve_.peak(batch), forward_.flops(batch), curve_.flops(batch), false};
  if (chunk && unit == 1 && *chunk < batch && most >= 16)
    cost.peak = std::min(cost.peak, peak_of_smaller_chunks(batch, most, *chunk));
  return cost;
}

std::shared_ptr<Objective> LossCosts::with_chunk(double factor) const {
  config::ModuleSettings settings = settings_;
  settings.settings = chunks_scaled(settings.settings, factor);
  ObjectiveContext context;
  context.embed_dim = run_.model->embed_dim();
  context.shared = &run_.model->shared();
  const auto objective = objectives().make(settings, "objective", context);
  objective->to(run_.device);
  return objective;
}

double LossCosts::peak_of_smaller_chunks(std::int64_t batch, std::int64_t most, std::int64_t chunk) {
  // peak = a + b n + c t + d n t + e t t + f n n for n samples in chunks of t, all measured over `most`.
  const auto scale = static_cast<double>(most);
  const auto terms = [](double n, double t) { return std::array<double, 6>{1, n, t, n * t, t * t, n * n}; };
  std::vector<double> rows, peaks;
  for (const std::int64_t cuts : {4, 8, 16}) {
    const std::int64_t tile = most / cuts;
    const std::shared_ptr<Objective> objective = with_chunk(static_cast<double>(tile) / static_cast<double>(chunk));
    for (const std::int64_t quarters : {2, 3, 4}) {
      const std::int64_t samples = quarters * most / 4 / tile * tile;
      const auto row = terms(static_cast<double>(samples) / scale, static_cast<double>(tile) / scale);
      rows.insert(rows.end(), row.begin(), row.end());
      peaks.push_back(measure(*objective, samples, nullptr).peak);
    }
  }
  const auto count = static_cast<std::int64_t>(peaks.size());
  const at::Tensor matrix = at::tensor(rows, at::kDouble).view({count, 6}),
                   values = at::tensor(peaks, at::kDouble).view({count, 1});
  const at::Tensor solution = std::get<0>(at::linalg_lstsq(matrix, values, std::nullopt, "gelsd"));
  const auto wanted = terms(static_cast<double>(batch) / scale, static_cast<double>(chunk) / scale);
  double peak = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    peak += wanted[i] * solution[static_cast<std::int64_t>(i)][0].item<double>();
  // Never less than what grows with the samples alone.
  return std::max(peak, peaks.back() * static_cast<double>(batch) / scale);
}

}  // namespace tessera
