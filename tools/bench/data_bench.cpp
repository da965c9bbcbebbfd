#include <algorithm>
#include <ctime>

#include <nlohmann/json.hpp>

#include "src/base/clock.h"
#include "src/data/image/image_views.h"
#include "src/measure/machine.h"
#include "src/report/markdown_table.h"
#include "tools/bench/data_bench.h"
#include <tessera/base/error.h>
#include <tessera/data/image/transforms.h>

namespace tessera::bench {
namespace {

double processor_seconds(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Runs `step` on one sample after another until the time limit. Returns the CPU seconds per sample.
template <class Step>
double measure_cost(const IndexedSource& source, double time_limit, std::int64_t& samples, Step step) {
  const double until = steady_seconds() + time_limit;
  std::int64_t index = 0;
  for (; index < std::min<std::int64_t>(source.size(), 8); ++index) step(index);  // warm-up
  samples = 0;
  const double begin = processor_seconds(CLOCK_THREAD_CPUTIME_ID);
  do {
    step(index++ % source.size());
    ++samples;
  } while (steady_seconds() < until);
  return (processor_seconds(CLOCK_THREAD_CPUTIME_ID) - begin) / static_cast<double>(samples);
}

DataCost::Threads measure_loader(std::shared_ptr<const Source> source, const DataBenchSettings& settings,
                                 const Needs& needs, std::int64_t threads) {
  LoaderSettings loader_settings = settings.loader;
  loader_settings.threads = threads;
  loader_settings.batch_size = std::min(loader_settings.batch_size, source->size());
  Loader loader(std::move(source), nullptr, settings.preprocessing, loader_settings, needs, 0);
  for (std::int64_t i = 0; i < 2; ++i) loader.next();
  double samples = 0;
  const double begin = steady_seconds(), cpu_begin = processor_seconds(CLOCK_PROCESS_CPUTIME_ID);
  do samples += static_cast<double>(loader.next().size());
  while (steady_seconds() < begin + settings.time_limit);
  return {threads, samples / (steady_seconds() - begin),
          (processor_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_begin) / samples};
}

DataCost measure_source(const std::shared_ptr<const IndexedSource>& source, const DataBenchSettings& settings) {
  const auto make_image = training_image_work(settings.preprocessing, settings.loader);
  DataCost cost{source->describe()};
  std::int64_t count = 0;
  double bytes = 0;
  const auto stage = [&](const char* name, const std::function<void(std::int64_t)>& step) {
    if (settings.progress) settings.progress(concat(cost.source, ": ", name));
    const auto tolerant = [&](std::int64_t index) {
      try {
        step(index);
      } catch (const SampleError&) {
        // Corrupt samples count, too, because the loader spends time on them.
      }
    };
    cost.stages.push_back({name, measure_cost(*source, settings.time_limit, cost.samples, tolerant)});
  };
  stage("read", [&](std::int64_t index) {
    bytes += static_cast<double>(source->get(index).encoded.size());
    ++count;
  });
  cost.bytes = bytes / static_cast<double>(std::max<std::int64_t>(count, 1));
  stage("read + decode whole, full scale", [&](std::int64_t index) { decode_image(source->get(index).encoded); });
  stage("read + decode for the crop + transform",
        [&](std::int64_t index) { make_image(source->get(index), index); });
  for (const std::int64_t threads : settings.threads) {
    if (settings.progress) settings.progress(concat(cost.source, ": loader, ", threads, " threads"));
    cost.loader.push_back(measure_loader(source, settings, Needs{.texts = {}}, threads));
  }
  return cost;
}

}  // namespace

DataBench measure_data(const DataBenchSettings& settings) {
  DataBench bench{machine_name(at::kCPU), settings.preprocessing.image_size.height, {}};
  for (const auto& source : settings.sources) bench.costs.push_back(measure_source(indexed(source), settings));
  return bench;
}

std::string to_markdown(const DataBench& bench) {
  std::string out = concat("Machine: ", bench.machine, ". Crops of ", bench.image_size, " x ", bench.image_size,
                           "; one thread, CPU time.\n\n");
  std::vector<std::vector<std::string>> rows, loader_rows;
  for (const DataCost& cost : bench.costs) {
    for (const DataCost::Stage& stage : cost.stages)
      rows.push_back({cost.source, stage.name, report::three_digits(cost.bytes / 1e3), report::three_digits(1e3 * stage.seconds),
                      report::three_digits(1 / stage.seconds)});
    for (const DataCost::Threads& threads : cost.loader)
      loader_rows.push_back({cost.source, std::to_string(threads.count), report::three_digits(threads.images_per_second),
                             report::three_digits(1e3 * threads.core_seconds), report::three_digits(1 / threads.core_seconds)});
  }
  out += report::markdown_table({"images", "stages", "kB per file", "ms", "images/s per core"}, rows);
  return out + "\nThe whole loader:\n\n" +
         report::markdown_table({"images", "threads", "images/s", "core ms", "images/s per core"}, loader_rows);
}

std::string to_json(const DataBench& bench) {
  nlohmann::ordered_json json = {
      {"machine", bench.machine}, {"image_size", bench.image_size}, {"sources", nlohmann::ordered_json::array()}};
  for (const DataCost& cost : bench.costs) {
    nlohmann::ordered_json each = {{"source", cost.source}, {"bytes", cost.bytes}};
    for (const DataCost::Stage& stage : cost.stages)
      each["stages"].push_back({{"name", stage.name}, {"core_seconds", stage.seconds}});
    for (const DataCost::Threads& threads : cost.loader)
      each["loader"].push_back({{"threads", threads.count},
                                {"images_per_second", threads.images_per_second},
                                {"core_seconds", threads.core_seconds}});
    json["sources"].push_back(each);
  }
  return json.dump(2) + "\n";
}

}  // namespace tessera::bench
