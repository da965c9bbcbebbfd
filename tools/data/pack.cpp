#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/progress.h"
#include "src/data/packing/pack.h"
#include "tools/command_line.h"
#include "tools/data/command.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/shipped.h>

namespace tessera::tools {
namespace {

struct PackOptions {
  std::string source;
  std::vector<std::string> settings;
  PackSettings pack;
};

int run_pack(const PackOptions& options) {
  const config::ModuleSettings choice = sources().resolve({options.source, settings_of(options.settings)}, "--source");
  const std::shared_ptr<Source> source = sources().make(choice, "--source");
  std::optional<Progress> progress(std::in_place, "pack", "samples");
  const PackResult result =
      pack(*source, config::to_yaml(choice.settings), options.pack, [&](std::int64_t done, std::int64_t begun_at) {
        progress->show(done, source->size(), begun_at);
      });
  progress.reset();
  if (result.was_complete) std::cout << result.manifest << ": already complete, nothing was written\n";
  std::cout << source->describe() << ": " << with_thousands(result.samples) << " samples in " << result.shards.size()
            << (result.shards.size() == 1 ? " shard, " : " shards, ") << format_bytes(static_cast<double>(result.bytes))
            << ", fingerprint " << result.fingerprint << "\n";
  if (!result.bad.empty())
    std::cout << "left out: " << describe_counts(result.bad) << "; " << result.manifest << " lists them\n";
  // "*" would also match the shards of a set NAME-OTHER in the same folder.
  const char* number = result.shards.size() > 100'000 ? "*" : "?????";
  std::cout << "read them with {name: webdataset, path: " << options.pack.folder << "/" << options.pack.name << "-" << number << ".tar";
  if (source->depth_units() != 1000) std::cout << ", depth_units: " << source->depth_units();
  if (source->background_class() >= 0) std::cout << ", background_class: " << source->background_class();
  std::cout << "}\n";
  return 0;
}

// Parses a number of bytes, such as "1GB", "500MB", "2GiB" or "1000000".
std::int64_t parse_bytes(const std::string& text) {
  static const std::vector<std::pair<std::string, double>> units = {
      {"GiB", 1073741824.0}, {"MiB", 1048576.0}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"", 1.0}};
  for (const auto& [unit, factor] : units) {
    if (!text.ends_with(unit)) continue;
    char* end = nullptr;
    const std::string number = text.substr(0, text.size() - unit.size());
    const double value = std::strtod(number.c_str(), &end);
    if (!number.empty() && end == number.c_str() + number.size() && value >= 0 && value * factor < 9e18)
      return static_cast<std::int64_t>(value * factor);
    break;
  }
  throw CLI::ValidationError("--shard-bytes", "expected a number of bytes such as 1GB, got " + text);
}

// Adds the options of `pack`; `summarize` has the same options.
Command writes_shards(CLI::App* app, const std::shared_ptr<PackOptions>& options) {
  PackSettings& settings = options->pack;
  app->add_option("--source", options->source, "registered name: " + join_names(sources().names()))->required();
  add_overrides(*app, "--set", options->settings, "a setting of the source");
  app->add_option("--out", settings.folder, "folder for NAME-00000.tar, ..., NAME.json and classes.txt")->required();
  add_default(*app, "--name", settings.name, "what the shards' names begin with");
  add_default(*app, "--shard-size", settings.samples_per_shard, "samples in a shard")->check(positive_number());
  app->add_option_function<std::string>(
      "--shard-bytes", [options](const std::string& text) { options->pack.bytes_per_shard = parse_bytes(text); },
      "largest size of a shard, such as 1GB; 0: no limit (default)");
  app->add_option("--resize", settings.resize,
                  "resize larger images to this many pixels on the shorter side (default: keep the files' own bytes)")
      ->check(positive_number());
  add_default(*app, "--quality", settings.quality, "quality of the JPEG files that --resize writes")->check(CLI::Range(1, 100));
  add_default(*app, "--gray-range", settings.gray_range,
              "value of white in gray images of 16 bits, which --resize writes with 8 bits; 4095: for scans of 12 bits")
      ->check(CLI::Range(255, 65535));
  add_default(*app, "--format", settings.format, "file format of images that are resized, or not encoded yet: jpg or png")
      ->check(CLI::IsMember({"jpg", "png"}));
  add_default(*app, "--max-bad-share", settings.max_bad_share,
              "stop if a larger share of the samples is bad, checked from the 100th sample on and at the end; 0: stop at "
              "the first bad sample")
      ->check(CLI::Range(0.0, 1.0));
  settings.threads = std::max(1U, std::thread::hardware_concurrency());
  add_threads(*app, settings.threads);
  return {app, [options] { return run_pack(*options); }};
}

}  // namespace

Command pack_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand("pack", "Writes any data source as WebDataset shards.");
  app->footer(
      "Example: tessera-data pack --source csv --set path=captions.csv --out data/shards --shard-bytes 1GB --resize "
      "512\n"
      "If the command is killed, running it again continues after the last complete shard. NAME.json is the manifest.");
  return writes_shards(app, std::make_shared<PackOptions>());
}

Command summarize_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "summarize", "Writes shards as `pack` does, and adds a summary made from the captions to samples without one.");
  app->footer(
      "Example: tessera-data summarize --source webdataset --set 'path=data/cc3m/{00000..00331}.tar' --out "
      "data/cc3m_s\n"
      "The summary is the sentence with the most frequent words among all sentences of a sample's captions, without\n"
      "brackets, links and tags, and at most 12 words long. " +
      config::documentation("systems/pyramidclip.md") + " explains what summaries are for.");
  const auto options = std::make_shared<PackOptions>();
  options->pack.summarize = true;
  return writes_shards(app, options);
}

}  // namespace tessera::tools
