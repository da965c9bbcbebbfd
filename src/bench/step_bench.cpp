#include <algorithm>
#include <chrono>
#include <map>

#include <nlohmann/json.hpp>

#include <tessera/base/text.h>
#include <tessera/bench/step_bench.h>
#include <tessera/measure/machine.h>
#include <tessera/measure/step_meter.h>
#include <tessera/report/markdown_table.h>

namespace tessera::bench {
namespace {

// Median seconds of each phase; the device is waited for behind each, so that they add up to more than a step.
std::vector<PhaseCost> measure_phases(TrainingStep& step, const StepBenchSettings& s) {
  std::vector<PhaseCost> costs;
  std::map<std::string, std::vector<double>> seconds;
  for (int i = 0; i < s.repeats; ++i) {
    synchronize(s.step.device);
    auto begin = std::chrono::steady_clock::now();
    step.run(/*views_joined=*/true, [&](const char* phase) {
      synchronize(s.step.device);
      const auto now = std::chrono::steady_clock::now();
      if (i == 0) costs.push_back({phase});
      seconds[phase].push_back(std::chrono::duration<double>(now - begin).count());
      begin = now;
    });
  }
  for (PhaseCost& cost : costs) {
    std::vector<double>& all = seconds[cost.phase];
    std::ranges::nth_element(all, all.begin() + std::ssize(all) / 2);
    cost.seconds = all[all.size() / 2];
  }
  return costs;
}

StepCost measure(TrainingStep& step, const std::string& configuration, bool views_joined, const StepBenchSettings& s) {
  StepCost cost{configuration, views_joined, step.parameters()};
  step.run(views_joined);  // the optimizer's state, and what operators keep from their first call on
  {
    const FlopCounter flops;
    const PeakMemory memory(s.step.device);
    step.run(views_joined);
    synchronize(s.step.device);
    cost.flops = flops.flops();
    cost.memory = memory.peak();
  }
  cost.seconds = median_seconds(
      s.step.device, [&] { step.run(views_joined); }, s.repeats, s.time_limit);
  if (s.phases && views_joined) cost.phases = measure_phases(step, s);
  if (s.progress) s.progress(concat(configuration, ": ", cost.seconds * 1e3, " ms"));
  return cost;
}

}  // namespace

StepBench measure_steps(const StepBenchSettings& s) {
  StepBench bench{s, machine_name(s.step.device), {}};
  for (const std::string& configuration : s.configurations) {
    TrainingStep step(configuration, s.step);
    bench.costs.push_back(measure(step, configuration, /*views_joined=*/true, s));
    if (step.has_several_views()) bench.costs.push_back(measure(step, configuration, /*views_joined=*/false, s));
  }
  return bench;
}

namespace {

std::string phases_to_markdown(const StepBench& bench) {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> header{"configuration, ms"};
  for (const StepCost& cost : bench.costs) {
    if (cost.phases.empty()) continue;
    rows.push_back({cost.configuration});
    for (const PhaseCost& phase : cost.phases) {
      if (rows.size() == 1) header.push_back(phase.phase);
      rows.back().push_back(report::three_digits(phase.seconds * 1e3));
    }
  }
  return rows.empty() ? "" : "\n" + report::markdown_table(header, rows);
}

}  // namespace

std::string to_markdown(const StepBench& bench) {
  std::vector<std::vector<std::string>> rows;
  for (const StepCost& cost : bench.costs)
    rows.push_back({cost.configuration + (cost.views_joined ? "" : ", views one by one"),
                    with_thousands(cost.parameters), report::three_digits(cost.flops / 1e12),
                    report::three_digits(static_cast<double>(cost.memory) / (1024.0 * 1024.0)),
                    report::three_digits(cost.seconds * 1e3),
                    report::three_digits(static_cast<double>(bench.settings.step.batch_size) / cost.seconds),
                    report::three_digits(cost.seconds / bench.costs[0].seconds)});
  return concat("Machine: ", bench.machine, ". ", bench.settings.step.batch_size, " pairs, ",
                bench.settings.step.dtype == at::kBFloat16 ? "bfloat16 (autocast)" : "float32", ", captions ",
                bench.settings.step.caption_lengths, ".\n\n") +
         report::markdown_table(
             {"configuration", "parameters", "TFLOPs", "peak MiB", "ms a step", "pairs/s", "time over the first's"},
             rows) +
         phases_to_markdown(bench);
}

std::string to_json(const StepBench& bench) {
  nlohmann::ordered_json json = {{"machine", bench.machine},
                                 {"batch_size", bench.settings.step.batch_size},
                                 {"steps", nlohmann::ordered_json::array()}};
  for (const StepCost& cost : bench.costs) {
    json["steps"].push_back({{"configuration", cost.configuration},
                             {"views_joined", cost.views_joined},
                             {"parameters", cost.parameters},
                             {"flops", cost.flops},
                             {"seconds", cost.seconds},
                             {"peak_bytes", cost.memory}});
    for (const PhaseCost& phase : cost.phases) json["steps"].back()["phases"][phase.phase] = phase.seconds;
  }
  return json.dump(1) + "\n";
}

}  // namespace tessera::bench
