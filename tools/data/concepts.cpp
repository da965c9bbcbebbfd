#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/progress.h"
#include "src/data/packing/count_concepts.h"
#include "tools/command_line.h"
#include "tools/data/command.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::tools {
namespace {

struct ConceptsOptions {
  std::string source;
  std::vector<std::string> settings;
  std::string entries;
  std::string out;
  std::vector<std::int64_t> thresholds = {20'000};
  std::int64_t threads = std::max(1U, std::thread::hardware_concurrency());
};

void print_concepts(const ConceptsOptions& options, const CountedConcepts& counted) {
  const auto& counts = counted.counts.counts;
  const std::int64_t found = std::ranges::count_if(counts, [](std::int64_t count) { return count > 0; });
  std::cout << options.out << ": " << with_thousands(counted.matched) << " of " << with_thousands(counted.samples) << " samples contain one of "
            << with_thousands(found) << " of " << with_thousands(std::ssize(counts)) << " entries\n";
  if (!counted.left_out.empty()) std::cout << "left out: " << describe_counts(counted.left_out) << "\n";
  for (std::size_t i = 0; i < counted.kept.size(); ++i) {
    const std::int64_t threshold = options.thresholds[i];
    const std::int64_t head = std::ranges::count_if(counts, [&](std::int64_t count) { return count > threshold; });
    std::cout << "threshold " << with_thousands(threshold) << ": " << with_thousands(head) << " entries are above it; an epoch has about "
              << with_thousands(std::llround(counted.kept[i])) << " samples\n";
  }
}

int run_concepts(const ConceptsOptions& options) {
  const std::shared_ptr<const Source> source = sources().make({options.source, settings_of(options.settings)}, "--source");
  std::optional<Progress> progress(std::in_place, "concepts", "samples");
  const CountedConcepts counted =
      count_concepts(source, read_concepts(options.entries), options.entries, options.thresholds, options.threads,
                     std::filesystem::path(options.out).parent_path().string(), [&](std::int64_t done, std::int64_t total) { progress->show(done, total); });
  progress.reset();
  write_concept_counts(options.out, counted.counts);
  print_concepts(options, counted);
  return 0;
}

}  // namespace

Command concepts_command(CLI::App& program) {
  const auto options = std::make_shared<ConceptsOptions>();
  CLI::App* app = program.add_subcommand(
      "concepts", "Counts in how many samples' captions the entries of a list occur, for data.loader.balance (MetaCLIP).");
  app->footer("Example: tessera-data concepts --source webdataset --set path='shards/{00000..00099}.tar' --entries metadata.json --out counts.tsv");
  app->add_option("--source", options->source, "registered name: " + join_names(sources().names()))->required();
  add_overrides(*app, "--set", options->settings, "a setting of the source");
  app->add_option("--entries", options->entries, "the entries: one per line, or a JSON list of texts (.json)")->required();
  app->add_option("--out", options->out, "the file to write: count, tab and entry in each line")->required();
  add_default(*app, "--thresholds", options->thresholds, "thresholds for which to print the expected size of an epoch")->check(positive_number());
  add_threads(*app, options->threads);
  return {app, [options] { return run_concepts(*options); }};
}

}  // namespace tessera::tools
