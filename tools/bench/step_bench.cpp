#include <algorithm>
#include <chrono>
#include <map>

#include <ATen/Context.h>
#include <nlohmann/json.hpp>

#include "src/base/clock.h"
#include "src/measure/machine.h"
#include "src/measure/step_meter.h"
#include "src/report/markdown_table.h"
#include "tools/bench/step_bench.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Returns the median seconds of each phase. Waits for the device after each phase, so the sum of the phases exceeds the time of a step.
// Gradients are reduced during the backward pass, so "reduce" cannot be timed directly. Its time is the difference between steps with and
// without reduction, which run alternately.
std::vector<PhaseCost> measure_phases(TrainingStep& step, const StepBenchSettings& s) {
  std::vector<std::string> names;
  std::map<std::string, std::vector<double>> seconds;
  std::vector<double> with, without;
  for (int i = 0; i < s.repeats; ++i) {
    TrainingStep::How how;
    how.reduce = false;
    synchronize(s.step.device);
    auto begin = Clock::now();
    how.on_phase = [&](const char* phase) {
      synchronize(s.step.device);
      if (i == 0) names.emplace_back(phase);
      seconds[phase].push_back(seconds_since(begin));
      begin = Clock::now();
    };
    step.run(how);
    if (!step.reduces()) continue;
    how.on_phase = {};
    without.push_back(measure_seconds(s.step.device, [&] { step.run(how); }));
    with.push_back(measure_seconds(s.step.device, [&] { step.run(); }));
  }
  std::vector<PhaseCost> costs;
  for (const std::string& name : names) costs.push_back({name, median(seconds[name])});
  if (step.reduces()) costs.push_back({"reduce", median(with) - median(without)});
  return costs;
}

double host_seconds(const at::Device& device, const std::function<void()>& run, int repeats) {
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    const auto begin = Clock::now();
    run();
    seconds.push_back(seconds_since(begin));
    synchronize(device);
  }
  return median(std::move(seconds));
}

void profile(StepCost& cost, const std::function<void()>& run, const StepBenchSettings& s) {
  Profiler profiler(s.step.device);
  profiler.mark("step");
  run();
  profiler.end_mark();
  synchronize(s.step.device);
  profiler.stop();
  cost.host_waits = profiler.host_waits();
  cost.operators = profiler.shares();
  cost.operators.resize(std::min(cost.operators.size(), static_cast<std::size_t>(s.operators)));
  if (!s.trace.empty()) profiler.save(s.trace);
}

StepCost measure(TrainingStep& step, const std::string& configuration, const std::string& variant,
                 const std::function<void()>& run, const StepBenchSettings& s) {
  StepCost cost;
  cost.configuration = configuration;
  cost.variant = variant;
  cost.parameters = step.parameters();
  run();  // warm-up: allocates optimizer state and memory that operators reuse later
  {
    const FlopCounter flops;
    const PeakMemory memory(s.step.device);
    run();
    synchronize(s.step.device);
    cost.flops = flops.flops() - flops.recomputed();
    cost.memory = memory.peak();
  }
  cost.seconds = median_seconds(s.step.device, run, s.repeats, s.time_limit);
  const bool gpu = !s.step.device.is_cpu();
  cost.host_seconds = gpu ? host_seconds(s.step.device, run, s.repeats) : cost.seconds;
  if (gpu || s.operators > 0 || !s.trace.empty()) profile(cost, run, s);
  if (s.progress) s.progress(concat(configuration, variant.empty() ? "" : ", ", variant, ": ", cost.seconds * 1e3, " ms"));
  return cost;
}

Arithmetic arithmetic_of(at::ScalarType dtype) {
  if (dtype == at::kBFloat16) return Arithmetic::bfloat16;
  return at::globalContext().allowTF32CuBLAS() ? Arithmetic::tf32 : Arithmetic::float32;
}

std::string title(const StepCost& cost) {
  return cost.configuration + (cost.variant.empty() ? "" : ", " + cost.variant);
}

double mfu(const StepCost& cost, const PeakFlops& peak) {
  return cost.flops / cost.seconds / peak.flops;
}

std::string phases_to_markdown(const StepBench& bench) {
  const std::vector<PhaseCost> none;
  const std::vector<PhaseCost>* most = &none;  // the longest list of phases: the phase "teacher" exists only with a teacher
  for (const StepCost& cost : bench.costs)
    if (cost.phases.size() > most->size()) most = &cost.phases;
  std::vector<std::string> header{"configuration, ms"};
  for (const PhaseCost& phase : *most) header.push_back(phase.phase);
  std::vector<std::vector<std::string>> rows;
  for (const StepCost& cost : bench.costs) {
    if (cost.phases.empty()) continue;
    rows.push_back({cost.configuration});
    for (const PhaseCost& column : *most) {
      const auto found = std::ranges::find(cost.phases, column.phase, &PhaseCost::phase);
      rows.back().push_back(found == cost.phases.end() ? "" : report::three_digits(found->seconds * 1e3));
    }
  }
  return rows.empty() ? "" : "\n" + report::markdown_table(header, rows);
}

// Returns a readable part of a kernel's name, which may be 1,000 characters of template arguments. The JSON has the full name.
std::string short_name(std::string name) {
  for (const std::string_view noise : {"void ", "at::native::", "(anonymous namespace)::"})
    for (std::size_t at = name.find(noise); at != std::string::npos; at = name.find(noise, at)) name.erase(at, noise.size());
  constexpr std::size_t kLongest = 80;
  return name.size() <= kLongest ? name : name.substr(0, kLongest - 3) + "...";
}

std::string operators_to_markdown(const StepCost& cost, bool gpu) {
  std::vector<std::vector<std::string>> rows;
  for (const Profiler::Share& share : cost.operators)
    rows.push_back({short_name(share.name), report::three_digits(share.seconds * 1e3), with_thousands(share.calls)});
  if (rows.empty()) return "";
  return "\n" + report::markdown_table({concat(title(cost), gpu ? ": kernels" : ": operators"), "ms", "calls"}, rows);
}

}  // namespace

StepBench measure_steps(const StepBenchSettings& s) {
  StepBench bench{s, machine_name(s.step.device), peak_flops(s.step.device, arithmetic_of(s.step.dtype)), {}};
  for (const std::string& configuration : s.configurations) {
    TrainingStep step(configuration, s.step);
    if (s.recorded && !step.can_be_recorded())
      user_error(configuration, ": a recorded step needs a GPU, backend auto, and an objective that is the same in each step");
    bench.costs.push_back(measure(step, configuration, "", [&] { step.run(); }, s));
    if (s.phases) bench.costs.back().phases = measure_phases(step, s);
    if (step.has_several_views()) {
      TrainingStep::How one_by_one;
      one_by_one.views_joined = false;
      bench.costs.push_back(measure(step, configuration, "views one by one", [&] { step.run(one_by_one); }, s));
    }
    if (s.recorded) bench.costs.push_back(measure(step, configuration, "recorded", [&] { step.run_recorded(); }, s));
  }
  return bench;
}

std::string to_markdown(const StepBench& bench) {
  const bool gpu = !bench.settings.step.device.is_cpu();
  std::vector<std::string> header = {"configuration", "parameters", "TFLOPs",  "peak MiB",
                                     "ms per step",   "pairs/s",    "MFU (%)", "relative time"};
  if (gpu) header.insert(header.end(), {"host ms", "host waits"});
  std::vector<std::vector<std::string>> rows;
  for (const StepCost& cost : bench.costs) {
    rows.push_back({title(cost), with_thousands(cost.parameters), report::three_digits(cost.flops / 1e12),
                    report::three_digits(static_cast<double>(cost.memory) / (1024.0 * 1024.0)),
                    report::three_digits(cost.seconds * 1e3),
                    report::three_digits(static_cast<double>(bench.settings.step.batch_size) / cost.seconds),
                    report::three_digits(100 * mfu(cost, bench.peak)),
                    report::three_digits(cost.seconds / bench.costs[0].seconds)});
    if (gpu) {
      rows.back().push_back(report::three_digits(cost.host_seconds * 1e3));
      rows.back().push_back(std::to_string(cost.host_waits));
    }
  }
  std::string out =
      concat("Machine: ", bench.machine, ". ", bench.settings.step.batch_size, " pairs, ",
             bench.settings.step.dtype == at::kBFloat16 ? "bfloat16 (autocast)" : "float32", ", captions ",
             bench.settings.step.caption_lengths, ". MFU is the share of ", report::three_digits(bench.peak.flops / 1e12),
             " TFLOP/s (", bench.peak.measured ? "measured: " : "", bench.peak.origin, ").\n\n") +
      report::markdown_table(header, rows) + phases_to_markdown(bench);
  for (const StepCost& cost : bench.costs) out += operators_to_markdown(cost, gpu);
  return out;
}

std::string to_json(const StepBench& bench) {
  nlohmann::ordered_json json = {{"machine", bench.machine},
                                 {"batch_size", bench.settings.step.batch_size},
                                 {"peak_flops", bench.peak.flops},
                                 {"steps", nlohmann::ordered_json::array()}};
  for (const StepCost& cost : bench.costs) {
    json["steps"].push_back({{"configuration", cost.configuration},
                             {"variant", cost.variant},
                             {"parameters", cost.parameters},
                             {"flops", cost.flops},
                             {"seconds", cost.seconds},
                             {"host_seconds", cost.host_seconds},
                             {"host_waits", cost.host_waits},
                             {"mfu", mfu(cost, bench.peak)},
                             {"peak_bytes", cost.memory}});
    for (const PhaseCost& phase : cost.phases) json["steps"].back()["phases"][phase.phase] = phase.seconds;
    for (const Profiler::Share& share : cost.operators)
      json["steps"].back()["operators"].push_back(
          {{"name", share.name}, {"seconds", share.seconds}, {"calls", share.calls}});
  }
  return json.dump(1) + "\n";
}

}  // namespace tessera::bench
