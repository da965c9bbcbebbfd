#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/data/command.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/data/contact_sheet.h>
#include <tessera/data/encode.h>
#include <tessera/data/source.h>
#include <tessera/data/transforms.h>
#include <tessera/io/atomic_file.h>

namespace tessera::tools {
namespace {

using Json = nlohmann::ordered_json;

struct InspectOptions {
  std::string source;
  std::vector<std::string> settings;
  std::int64_t samples = 10'000;
  std::string sheet;
  std::int64_t pictures = 24;
  std::int64_t columns = 6;
  std::int64_t cell = 192;
  bool json = false;
};

struct Findings {
  std::int64_t read = 0;
  std::map<std::string, std::int64_t> bad;          // by reason
  std::map<std::string, std::int64_t> image_sizes;  // "width x height"
  std::map<std::int64_t, std::int64_t> caption_words;
  std::map<std::int64_t, std::int64_t> captions;  // per sample
  std::map<std::int64_t, std::int64_t> objects;   // per sample
  std::map<std::int64_t, std::int64_t> labels;
  std::map<std::string, std::int64_t> having;  // samples with a mask, a summary, ...
  std::vector<Sample> pictures;
};

std::int64_t count_words(const std::string& text) {
  std::istringstream words(text);
  std::int64_t count = 0;
  for (std::string word; words >> word;) ++count;
  return count;
}

void examine(const Sample& sample, Findings& out) {
  ++out.read;
  ++out.image_sizes[concat(sample.image.width, " x ", sample.image.height)];
  ++out.captions[static_cast<std::int64_t>(sample.captions.size())];
  for (const std::string& caption : sample.captions) ++out.caption_words[count_words(caption)];
  if (!sample.objects.empty()) ++out.objects[static_cast<std::int64_t>(sample.objects.size())];
  if (sample.label >= 0) ++out.labels[sample.label];
  const auto note = [&](const char* what, bool there) { out.having[what] += there ? 1 : 0; };
  note("caption", !sample.captions.empty());
  note("label", sample.label >= 0);
  note("mask", !sample.mask.empty());
  note("summary", !sample.summary.empty());
  note("object tags", !sample.object_tags.empty());
  note("regions", !sample.regions.empty());
  note("hard negatives", !sample.negatives.empty());
}

Findings look_through(const Source& source, const InspectOptions& options) {
  Findings out;
  const std::int64_t count = std::min(options.samples, source.size());
  const std::int64_t pictures = options.sheet.empty() ? 0 : options.pictures;
  for (std::int64_t i = 0; i < count; ++i) {
    try {
      // Spread over the whole source, which may be sorted.
      Sample sample = source.get(i * source.size() / count);
      if (sample.image.empty()) sample.image = decode_image(sample.encoded);
      examine(sample, out);
      if (static_cast<std::int64_t>(out.pictures.size()) < pictures) out.pictures.push_back(std::move(sample));
    } catch (const SampleError& error) {
      ++out.bad[error.reason()];
    }
  }
  return out;
}

template <class Key>
Json to_json(const std::map<Key, std::int64_t>& counts) {
  Json json = Json::object();
  for (const auto& [key, count] : counts) json[concat(key)] = count;
  return json;
}

std::string class_name(const Source& source, std::int64_t label) {
  const std::vector<std::string> names = source.class_names();
  return label < static_cast<std::int64_t>(names.size()) ? names[static_cast<std::size_t>(label)]
                                                         : std::to_string(label);
}

Json report(const Source& source, const Findings& found) {
  Json json;
  json["source"] = source.describe();
  json["samples"] = source.size();
  json["read"] = found.read;
  json["bad"] = to_json(found.bad);
  json["image_sizes"] = to_json(found.image_sizes);
  json["captions_per_sample"] = to_json(found.captions);
  json["words_per_caption"] = to_json(found.caption_words);
  json["objects_per_sample"] = to_json(found.objects);
  json["labels"] = Json::object();
  for (const auto& [label, count] : found.labels) json["labels"][class_name(source, label)] = count;
  json["samples_with"] = to_json(found.having);
  return json;
}

void print_bars(const std::string& title, const Json& counts) {
  constexpr std::size_t kMostRows = 32;
  constexpr double kWidth = 40;
  if (counts.empty()) return;
  std::int64_t most = 1;
  for (const auto& [key, count] : counts.items()) most = std::max(most, count.get<std::int64_t>());
  std::cout << "\n" << title << "\n";
  std::size_t rows = 0;
  for (const auto& [key, count] : counts.items()) {
    if (++rows > kMostRows) {
      std::cout << "  ... and " << counts.size() - kMostRows << " more\n";
      break;
    }
    const auto value = count.get<std::int64_t>();
    const auto bar = static_cast<std::size_t>(static_cast<double>(value) / static_cast<double>(most) * kWidth);
    std::printf("  %-16s %10s  %s\n", key.c_str(), with_thousands(value).c_str(), std::string(bar, '#').c_str());
  }
  std::fflush(stdout);
}

void print_report(const Json& json) {
  std::cout << json["source"].get<std::string>() << "; looked at " << with_thousands(json["read"].get<std::int64_t>())
            << std::endl;
  print_bars("bad samples by reason", json["bad"]);
  print_bars("image sizes, width x height", json["image_sizes"]);
  print_bars("samples that have a ...", json["samples_with"]);
  print_bars("captions per sample", json["captions_per_sample"]);
  print_bars("words per caption", json["words_per_caption"]);
  print_bars("objects per sample", json["objects_per_sample"]);
  print_bars("labels", json["labels"]);
}

int inspect(const InspectOptions& options) {
  config::Node settings = config::Node::map();
  for (const std::string& assignment : options.settings) config::apply_override(settings, assignment);
  const std::shared_ptr<Source> source = sources().make({options.source, settings}, "");
  const Findings found = look_through(*source, options);
  const Json json = report(*source, found);
  if (options.json)
    std::cout << json.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  else
    print_report(json);
  if (options.sheet.empty()) return 0;
  if (found.pictures.empty()) user_error("--sheet: no picture could be read");
  io::write_file(options.sheet, encode_png(contact_sheet(found.pictures, options.columns, options.cell)));
  return 0;
}

}  // namespace

Command inspect_command(CLI::App& program) {
  const auto options = std::make_shared<InspectOptions>();
  CLI::App* app =
      program.add_subcommand("inspect", "Counts what a data source holds, and draws a sheet of its pictures.");
  app->footer("Example: tessera-data inspect --source shapes --set split=test --sheet sheet.png");
  app->add_option("--source", options->source, "registered name: " + join_names(sources().names()))->required();
  app->add_option("--set", options->settings, "a setting of the source, KEY=VALUE");
  app->add_option("--samples", options->samples, "samples looked at, spread over the source")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app->add_option("--sheet", options->sheet, "PNG file for a contact sheet with captions");
  app->add_option("--pictures", options->pictures, "pictures on the sheet")
      ->capture_default_str()
      ->check(CLI::Range(1, 10'000));
  app->add_option("--columns", options->columns, "pictures side by side")
      ->capture_default_str()
      ->check(CLI::Range(1, 100));
  app->add_option("--cell", options->cell, "pixels, the side of a picture on the sheet")
      ->capture_default_str()
      ->check(CLI::Range(16, 1024));
  app->add_flag("--json", options->json, "write JSON instead of tables");
  return {app, [options] { return inspect(*options); }};
}

}  // namespace tessera::tools
