#include <array>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tools/bench/data_bench.h"
#include "tools/bench/data_benchmarks.h"
#include "tools/command_line.h"
#include <tessera/base/error.h>
#include <tessera/config/node.h>
#include <tessera/io/atomic_file.h>

namespace tessera::tools {
namespace {

struct DataOptions {
  std::vector<std::string> shards, sizes, settings;
  std::vector<std::int64_t> threads = {1, 2};
  std::int64_t images = 48, image_size = 224;
  double time_limit = 5;
  std::string json;
  bool quiet = false;
};

std::array<std::int64_t, 2> parse_image_size(const std::string& text) {
  std::array<std::int64_t, 2> size{};
  char cross = 0, rest = 0;
  std::istringstream in(text);
  if (!(in >> size[0] >> cross >> size[1]) || cross != 'x' || (in >> rest) || size[0] < 1 || size[1] < 1 ||
      size[0] > 20000 || size[1] > 20000)
    user_error("--sizes ", text, ": expected WIDTHxHEIGHT, such as 500x375");
  return size;
}

int run_data(const DataOptions& options) {
  bench::DataBenchSettings settings;
  settings.preprocessing.image_size = options.image_size;
  settings.time_limit = options.time_limit;
  if (!options.quiet) settings.progress = [](const std::string& line) { std::cerr << line << std::endl; };
  config::Node loader = config::Node::map();
  for (const std::string& setting : options.settings) config::apply_override(loader, setting);
  settings.loader = config::read<LoaderSettings>(loader, "", settings.loader);
  settings.threads = options.threads;
  check_folder_of("--json", options.json);

  for (const std::string& shards : options.shards) {
    config::Node node = config::Node::map();
    node.set("path", config::Node::scalar(shards, {}, true));
    settings.sources.push_back(sources().make({"webdataset", node}, ""));
  }
  if (options.shards.empty())
    for (const std::string& size : options.sizes) {
      const auto [width, height] = parse_image_size(size);
      settings.sources.push_back(bench::photograph_source(height, width, options.images));
    }
  const bench::DataBench bench = measure_data(settings);
  std::cout << to_markdown(bench);
  if (!options.json.empty()) io::write_file(options.json, to_json(bench));
  return 0;
}

}  // namespace

std::function<int()> add_data_benchmark(CLI::App& command) {
  auto options = std::make_shared<DataOptions>();
  options->sizes = {"500x375", "1600x1200"};
  command
      .add_option("--shards", options->shards, "WebDataset shards, each a path or pattern (default: generated images)")
      ->type_name("PATH");
  add_default(command, "--sizes", options->sizes,
              "sizes of generated images (JPEG of quality 90, with noise like a photograph's)")
      ->type_name("WxH");
  add_default(command, "--pictures", options->images, "generated images of each size")
      ->check(CLI::Range(1, 100000));
  add_default(command, "--image-size", options->image_size, "side of the crops in pixels")->check(CLI::Range(1, 4096));
  add_default(command, "--threads", options->threads, "numbers of loader threads to measure")->check(CLI::Range(1, 4096));
  add_overrides(command, "--set", options->settings, "a setting of data.loader (such as dct_scaling=off)");
  add_default(command, "--time-limit", options->time_limit, "seconds that one measurement takes")
      ->check(positive_number());
  command.add_option("--json", options->json, "also write the measurements to this file")->type_name("FILE");
  command.add_flag("--quiet", options->quiet, "print no progress on standard error");
  command.footer(
      "Measures training crops as OpenCLIP takes them (scale 0.9 to 1). scripts/compare/loading.py compares with Python.\n\n"
      "  tessera-bench data\n"
      "  tessera-bench data --shards 'train-{00000..00009}.tar' --threads 1 4 16 --json data.json");
  return [options] { return run_data(*options); };
}

}  // namespace tessera::tools
