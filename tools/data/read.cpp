#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "src/base/clock.h"
#include "src/base/dump_utf8.h"
#include "src/base/progress.h"
#include "src/measure/machine.h"
#include "tools/command_line.h"
#include "tools/data/command.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/data/loading/loader.h>

namespace tessera::tools {
namespace {

struct ReadOptions {
  std::string source;
  std::vector<std::string> settings;
  std::string tokenizer;
  std::vector<std::string> tokenizer_settings;
  std::vector<std::string> loader_settings;
  std::int64_t image_size = 224;
  std::int64_t epochs = 1;
  std::int64_t from_sample = 0;
  std::string skipped;
  bool json = false;
};

using Clock = std::chrono::steady_clock;

// The time and memory that a call of read_through() took.
struct ReadReport {
  std::int64_t samples = 0;
  double seconds = 0;
  double first_batch_seconds = 0;  // since the command began, with the opening of the data
  LoaderStatistics statistics;
  // The process's resident memory in bytes after 10, 20, ..., 100 percent of the batches were read.
  std::vector<std::pair<int, std::int64_t>> resident_bytes;
  std::int64_t resident_at_end = 0;
};

// Reads the `batches` batches that are left of the first `epochs` epochs. The command began at `start`. `progress` receives the number of batches read so far.
ReadReport read_through(Loader& loader, std::int64_t epochs, std::int64_t batches, Clock::time_point start,
                        const std::function<void(std::int64_t)>& progress) {
  const auto begin = Clock::now();
  const auto resident = [] { return memory_use(at::kCPU).resident; };
  ReadReport out;
  // Reads one batch past the last epoch, because only then have all samples of that epoch been read.
  for (std::int64_t done = 0;;) {
    const Batch batch = loader.next();
    if (loader.epoch() >= epochs) break;
    if (done == 0) out.first_batch_seconds = seconds_since(start);
    out.samples += batch.size();
    progress(std::min(++done, batches));
    for (int tenth = static_cast<int>(std::ssize(out.resident_bytes)) + 1; tenth <= 10 && done >= tenth * batches / 10;
         ++tenth)
      out.resident_bytes.emplace_back(10 * tenth, resident());
  }
  out.resident_at_end = resident();
  out.statistics = loader.statistics();
  out.seconds = seconds_since(begin);
  return out;
}

void print_json(const Source& source, const ReadReport& report) {
  nlohmann::ordered_json json;
  json["source"] = source.describe();
  json["samples"] = report.samples;
  json["skipped"] = report.statistics.skipped;
  json["seconds"] = report.seconds;
  json["first_batch_seconds"] = report.first_batch_seconds;
  json["samples_per_second"] = static_cast<double>(report.samples) / report.seconds;
  json["retries"] = report.statistics.retries;
  json["fetched_bytes"] = report.statistics.fetched_bytes;
  json["fetch_retries"] = report.statistics.fetch_retries;
  json["cache_hits"] = report.statistics.cache_hits;
  json["cache_misses"] = report.statistics.cache_misses;
  json["peak_bytes"] = report.statistics.peak_bytes;
  for (const auto& [percent, bytes] : report.resident_bytes) json["resident_bytes"][concat(percent, "%")] = bytes;
  json["resident_bytes"]["end"] = report.resident_at_end;
  std::cout << dump_utf8(json, 2) << "\n";
}

void print_text(const Source& source, const ReadReport& report) {
  const auto rate = static_cast<long long>(static_cast<double>(report.samples) / report.seconds);
  std::cout << source.describe() << ": " << with_thousands(report.samples) << " samples in "
            << format_duration(report.seconds) << ", " << with_thousands(rate) << "/s; the first batch after "
            << format_duration(report.first_batch_seconds) << "\n";
  for (const auto& [reason, count] : report.statistics.skipped)
    std::cout << "skipped: " << count << " " << reason << "\n";
  if (report.statistics.cache_hits + report.statistics.cache_misses > 0)
    std::cout << "fetched " << format_bytes(static_cast<double>(report.statistics.fetched_bytes)) << " with " << report.statistics.fetch_retries
              << " retries; " << with_thousands(report.statistics.cache_misses) << " of "
              << with_thousands(report.statistics.cache_hits + report.statistics.cache_misses) << " reads waited for a remote file\n";
  std::cout << "prefetched samples and batches took at most " << format_bytes(static_cast<double>(report.statistics.peak_bytes))
            << "\nmemory of the process:";
  for (const auto& [percent, bytes] : report.resident_bytes)
    std::cout << " " << percent << "% " << format_bytes(static_cast<double>(bytes));
  std::cout << " end " << format_bytes(static_cast<double>(report.resident_at_end)) << "\n";
}

int run_read(const ReadOptions& options) {
  const auto start = Clock::now();
  const std::shared_ptr<Source> source = sources().make({options.source, settings_of(options.settings)}, "--source");
  Needs needs;
  std::shared_ptr<Tokenizer> tokenizer;
  if (options.tokenizer.empty())
    needs.texts.clear();
  else
    tokenizer = tokenizers().make({options.tokenizer, settings_of(options.tokenizer_settings)}, "--tokenizer",
                                  TokenizerContext{});
  Preprocessing preprocessing;
  preprocessing.image_size = options.image_size;
  const auto settings = config::read<LoaderSettings>(settings_of(options.loader_settings));
  LoaderTarget target;
  target.skipped_file = options.skipped;
  target.share_setting = "--loader max_bad_share=";
  Loader loader(source, tokenizer, preprocessing, settings, needs, 0, {}, target);
  loader.seek({.epoch = 0, .cursor = options.from_sample});
  const std::int64_t batches = loader.batches_per_epoch() * options.epochs - options.from_sample / settings.batch_size;
  std::optional<Progress> progress(std::in_place, "read", "batches");
  const ReadReport report = read_through(loader, options.epochs, batches, start, [&](std::int64_t done) { progress->show(done, batches); });
  progress.reset();
  (options.json ? print_json : print_text)(*source, report);
  return 0;
}

}  // namespace

Command read_command(CLI::App& program) {
  const auto options = std::make_shared<ReadOptions>();
  CLI::App* app = program.add_subcommand(
      "read", "Reads a data source through the training loader and reports rate, bad samples and memory.");
  app->footer("Example: tessera-data read --source webdataset --set path='data/*.tar' --loader threads=4");
  app->add_option("--source", options->source, "registered name: " + join_names(sources().names()))->required();
  add_overrides(*app, "--set", options->settings, "a setting of the source");
  app->add_option("--tokenizer", options->tokenizer, "registered name (default: none, only images are read)");
  add_overrides(*app, "--tokenizer-set", options->tokenizer_settings, "a setting of the tokenizer");
  add_overrides(*app, "--loader", options->loader_settings, "a setting of data.loader");
  add_default(*app, "--image-size", options->image_size, "side of the images, in pixels")->check(positive_number());
  add_default(*app, "--epochs", options->epochs, "passes over the data")->check(positive_number());
  add_default(*app, "--from-sample", options->from_sample, "begin after so many samples of the first epoch, as a resumed run does")
      ->check(CLI::NonNegativeNumber);
  app->add_option("--skipped", options->skipped, "file to write that lists the bad samples, one JSON object per line");
  app->add_flag("--json", options->json, "write JSON");
  return {app, [options] { return run_read(*options); }};
}

}  // namespace tessera::tools
