#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/command_line.h"
#include "tools/data/command.h"
#include "tools/data/progress.h"
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
  std::string skipped;
  bool json = false;
};

config::Node from_assignments(const std::vector<std::string>& assignments) {
  config::Node node = config::Node::map();
  for (const std::string& assignment : assignments) config::apply_override(node, assignment);
  return node;
}

// Bytes of this process that lie in memory.
std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

int read_all(const ReadOptions& options) {
  const std::shared_ptr<Source> source =
      sources().make({options.source, from_assignments(options.settings)}, "--source");
  Needs needs;
  std::shared_ptr<Tokenizer> tokenizer;
  if (options.tokenizer.empty())
    needs.texts.clear();
  else
    tokenizer = tokenizers().make({options.tokenizer, from_assignments(options.tokenizer_settings)}, "--tokenizer",
                                  TokenizerContext{});
  Preprocessing preprocessing;
  preprocessing.image_size = options.image_size;
  const auto settings = config::read<LoaderSettings>(from_assignments(options.loader_settings));
  Loader loader(source, tokenizer, preprocessing, settings, needs, 0, {}, {false, options.skipped});
  const std::int64_t batches = loader.batches_per_epoch() * options.epochs;
  Progress progress("batches", batches);
  nlohmann::ordered_json resident = nlohmann::ordered_json::object();
  std::int64_t samples = 0;
  // The batch behind the last epoch comes when all of that has been looked at.
  for (std::int64_t done = 0, share = 0;;) {
    const Batch batch = loader.next();
    if (loader.epoch() >= options.epochs) break;
    samples += batch.size();
    progress.show(std::min(++done, batches));
    for (; share < 10 && done >= (share + 1) * batches / 10; ++share)
      resident[concat(10 * (share + 1), "%")] = resident_bytes();
  }
  resident["end"] = resident_bytes();
  const LoaderStatistics statistics = loader.statistics();
  const double seconds = progress.seconds();
  nlohmann::ordered_json json;
  json["source"] = source->describe();
  json["samples"] = samples;
  json["skipped"] = statistics.skipped;
  json["seconds"] = seconds;
  json["samples_per_second"] = static_cast<double>(samples) / seconds;
  json["retries"] = statistics.retries;
  json["peak_bytes"] = statistics.peak_bytes;
  json["resident_bytes"] = resident;
  if (options.json) {
    std::cout << json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
    return 0;
  }
  std::cout << source->describe() << ": " << with_thousands(samples) << " samples in " << format_duration(seconds)
            << ", " << with_thousands(static_cast<long long>(json["samples_per_second"].get<double>())) << "/s\n";
  for (const auto& [reason, count] : statistics.skipped) std::cout << "skipped: " << count << " " << reason << "\n";
  std::cout << "prefetched samples and batches took " << format_bytes(static_cast<double>(statistics.peak_bytes))
            << " at most\nmemory of the process:";
  for (const auto& [when, bytes] : resident.items())
    std::cout << " " << when << " " << format_bytes(bytes.get<double>());
  std::cout << "\n";
  return 0;
}

}  // namespace

Command read_command(CLI::App& program) {
  const auto options = std::make_shared<ReadOptions>();
  CLI::App* app = program.add_subcommand(
      "read", "Reads a data source through the training loader: rate, bad samples, memory on the way.");
  app->footer("Example: tessera-data read --source webdataset --set path='data/*.tar' --loader threads=4");
  app->add_option("--source", options->source, "registered name: " + join_names(sources().names()))->required();
  app->add_option("--set", options->settings, "a setting of the source, KEY=VALUE");
  app->add_option("--tokenizer", options->tokenizer, "registered name; without one only pictures are read");
  app->add_option("--tokenizer-set", options->tokenizer_settings, "a setting of the tokenizer, KEY=VALUE");
  app->add_option("--loader", options->loader_settings, "a setting of data.loader, KEY=VALUE");
  app->add_option("--image-size", options->image_size, "pixels, the side of the pictures")
      ->capture_default_str()
      ->check(positive_number());
  app->add_option("--epochs", options->epochs, "passes over the data")
      ->capture_default_str()
      ->check(positive_number());
  app->add_option("--skipped", options->skipped, "file that lists the bad samples, a JSON object a line");
  app->add_flag("--json", options->json, "write JSON");
  return {app, [options] { return read_all(*options); }};
}

}  // namespace tessera::tools
