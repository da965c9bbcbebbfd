#include <algorithm>
#include <atomic>
#include <cmath>
#include <ctime>

#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>

#include "src/data/shapes/shapes.h"
#include "src/measure/machine.h"
#include "src/report/markdown_table.h"
#include "tools/bench/tokenizer_bench.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::bench {
namespace {

// Encodes all captions with LibTorch's threads; returns the number of ids.
std::int64_t encode_all(const Tokenizer& tokenizer, const std::vector<std::string>& captions) {
  constexpr std::int64_t kGrain = 64;
  std::atomic<std::int64_t> ids = 0;
  at::parallel_for(0, std::ssize(captions), kGrain, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t own = 0;
    for (std::int64_t i = begin; i < end; ++i)
      own += std::ssize(tokenizer.encode(captions[static_cast<std::size_t>(i)]));
    ids += own;
  });
  return ids;
}

double captions_per_second(const TokenizerBench& bench, const TokenizerCost& cost) {
  return static_cast<double>(bench.captions) / cost.seconds;
}

}  // namespace

std::vector<std::string> shapes_captions() {
  const ShapesSource source({.size = 2000, .image_size = 16});
  std::vector<std::string> captions;
  for (std::int64_t i = 0; i < source.size(); ++i)
    for (std::string& caption : source.captions(i)) captions.push_back(std::move(caption));
  return captions;
}

TokenizerBench measure_tokenizers(const TokenizerBenchSettings& settings) {
  at::set_num_threads(settings.threads);
  TokenizerBench bench{machine_name(at::kCPU), settings.threads, std::ssize(settings.captions), 0, {}};
  for (const std::string& caption : settings.captions) bench.bytes += std::ssize(caption);
  for (const TokenizerBenchSettings::Choice& choice : settings.choices) {
    std::int64_t ids = 0;
    std::vector<double> processor;
    const auto run = [&] {
      const std::clock_t begin = std::clock();
      ids = encode_all(*choice.tokenizer, settings.captions);
      processor.push_back(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
    };
    const double seconds = median_seconds(at::kCPU, run, settings.repeats, settings.time_limit);
    bench.costs.push_back({choice.tokenizer->name(), choice.described,
                           static_cast<double>(ids) / static_cast<double>(bench.captions), seconds, median(processor)});
  }
  return bench;
}

std::string to_markdown(const TokenizerBench& bench) {
  std::vector<std::vector<std::string>> rows;
  for (const TokenizerCost& cost : bench.costs) {
    const double rate = captions_per_second(bench, cost);
    rows.push_back({cost.name, report::three_digits(cost.ids_per_caption), with_thousands(std::llround(rate)),
                    with_thousands(std::llround(rate / bench.threads)),
                    report::three_digits(static_cast<double>(bench.bytes) / cost.seconds / 1e6)});
  }
  return concat("Machine: ", bench.machine, ". ", with_thousands(bench.captions), " captions of ",
                report::three_digits(static_cast<double>(bench.bytes) / static_cast<double>(bench.captions)),
                " bytes on average.\n\n",
                report::markdown_table({"Tokenizer", "ids each", "captions/s", "per thread", "MB/s"}, rows));
}

std::string to_json(const TokenizerBench& bench) {
  nlohmann::json list = nlohmann::json::array();
  for (const TokenizerCost& cost : bench.costs) {
    const double rate = captions_per_second(bench, cost);
    list.push_back({{"name", cost.name},
                    {"tokenizer", cost.described},
                    {"ids_per_caption", cost.ids_per_caption},
                    {"seconds", cost.seconds},
                    {"processor_seconds", cost.processor_seconds},
                    {"captions_per_second", rate},
                    {"captions_per_second_per_thread", rate / bench.threads}});
  }
  return nlohmann::json{{"machine", bench.machine},
                        {"threads", bench.threads},
                        {"captions", bench.captions},
                        {"bytes", bench.bytes},
                        {"tokenizers", list}}
             .dump(2) +
         "\n";
}

}  // namespace tessera::bench
