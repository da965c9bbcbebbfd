#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "tools/command_line.h"
#include "tools/data/command.h"
#include "tools/data/progress.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/data/packing/shard_writer.h>
#include <tessera/data/shapes/shapes.h>

namespace tessera::tools {
namespace {

struct ShapesOptions {
  std::map<std::string, std::string> settings;  // key -> YAML text, as given
  ShardSettings shards;
};

// "--bad-captions-less" of bad_captions.less.
std::string option_name(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  std::replace(key.begin(), key.end(), '.', '-');
  return "--" + key;
}

// Sets a key, or one of a group: "bad_captions.less".
void set(config::Node& node, const std::string& key, config::Node value) {
  const std::size_t dot = key.find('.');
  if (dot == std::string::npos) return node.set(key, std::move(value));
  const config::Node* known = node.find(key.substr(0, dot));
  config::Node group = known != nullptr ? *known : config::Node::map();
  set(group, key.substr(dot + 1), std::move(value));
  node.set(key.substr(0, dot), std::move(group));
}

ShapesSettings read_settings(const ShapesOptions& options) {
  config::Node node = config::Node::map();
  for (const auto& [key, text] : options.settings) {
    const config::Node value = config::parse_yaml(text, option_name(key));
    // A value from the command line has no useful line number.
    set(node, key,
        value.is_scalar() ? config::Node::scalar(value.text(), {option_name(key), 0}, value.quoted()) : value);
  }
  return config::read<ShapesSettings>(node);
}

int write_shapes(ShapesOptions options) {
  const ShapesSettings settings = read_settings(options);
  const ShapesSource source(settings);
  options.shards.name = settings.split;
  Progress progress("samples", source.size());
  const auto paths = write_shards(source, options.shards, [&](std::int64_t done) { progress.show(done); });
  std::cout << source.describe() << " in " << paths.size() << (paths.size() == 1 ? " shard: " : " shards: ")
            << paths.front() << (paths.size() == 1 ? "" : " ... ") << (paths.size() == 1 ? "" : paths.back()) << " ("
            << format_duration(progress.seconds()) << ")\n";
  return 0;
}

}  // namespace

Command shapes_command(CLI::App& program) {
  const auto options = std::make_shared<ShapesOptions>();
  CLI::App* app = program.add_subcommand("shapes", "Writes the built-in data set as WebDataset shards.");
  app->footer(
      "Example: tessera-data shapes --out data/shapes --split train --size 100000\n"
      "Read the shards with {name: webdataset, path: FOLDER/train-*.tar}; txt holds the first caption, json all captions.");
  app->add_option("--out", options->shards.folder, "folder for SPLIT-00000.tar, ... and classes.txt")->required();
  add_default(*app, "--samples-per-shard", options->shards.samples_per_shard, "samples in a shard")
      ->check(positive_number());
  add_default(*app, "--format", options->shards.format, "file format of the images: png or jpg")
      ->check(CLI::IsMember({"png", "jpg"}));
  options->shards.threads = std::max(1U, std::thread::hardware_concurrency());
  add_threads(*app, options->shards.threads);
  for (const config::FieldDoc& field : config::document<ShapesSettings>())
    app->add_option_function<std::string>(
        option_name(field.path),
        [options, key = field.path](const std::string& text) { options->settings[key] = text; },
        field.help + " (" + field.type + ", default " + field.default_text + ")");
  return {app, [options] { return write_shapes(*options); }};
}

}  // namespace tessera::tools
