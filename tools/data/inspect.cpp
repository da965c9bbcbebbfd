#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "src/base/progress.h"
#include "src/data/image/encode.h"
#include "src/data/packing/contact_sheet.h"
#include "src/data/packing/inspect.h"
#include "tools/command_line.h"
#include "tools/data/command.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera::tools {
namespace {

using Json = nlohmann::ordered_json;

struct InspectOptions {
  std::string source;
  std::vector<std::string> settings;
  std::string tokenizer;
  std::vector<std::string> tokenizer_settings;
  InspectSettings inspect;
  std::string sheet;
  std::int64_t images = 24;
  std::int64_t columns = 6;
  std::int64_t cell = 192;
  bool json = false;
};

void print_bars(const std::string& title, const Json& counts) {
  constexpr std::size_t kMostRows = 32;
  constexpr double kWidth = 40;
  if (counts.empty()) return;
  std::int64_t most = 1;
  for (const auto& [key, count] : counts.items()) most = std::max(most, count.get<std::int64_t>());
  std::printf("\n%s\n", title.c_str());
  std::size_t rows = 0;
  for (const auto& [key, count] : counts.items()) {
    if (++rows > kMostRows) {
      std::printf("  ... and %zu more\n", counts.size() - kMostRows);
      break;
    }
    const auto value = count.get<std::int64_t>();
    const auto bar = static_cast<std::size_t>(static_cast<double>(value) / static_cast<double>(most) * kWidth);
    std::printf("  %-16s %10s  %s\n", key.c_str(), with_thousands(value).c_str(), std::string(bar, '#').c_str());
  }
}

void print_spread(const char* title, const Json& spread) {
  if (spread.empty()) return;
  std::printf("  %-22s", title);
  for (const auto& [name, value] : spread.items())
    std::printf("  %s %s", name.c_str(), with_thousands(value.get<std::int64_t>()).c_str());
  std::printf("\n");
}

struct Looks {
  std::int64_t good, bad, captionless;  // samples without a caption count as good, because training without texts uses them
  explicit Looks(const Json& json)
      : good(json["read"].get<std::int64_t>()),
        bad(0),
        captionless(good - json["samples_with"].value("caption", std::int64_t{0})) {
    for (const auto& [reason, count] : json["bad"].items()) bad += count.get<std::int64_t>();
  }
  std::int64_t all() const { return good + bad; }
};

/// Returns a text such as "looked at 1,000 samples: 777 good, 223 bad".
std::string describe(const Looks& looks) {
  return concat("looked at ", with_thousands(looks.all()), " samples: ",
                looks.bad == 0 ? "all of them good"
                               : with_thousands(looks.good) + " good, " + with_thousands(looks.bad) + " bad");
}

/// Prints how many images and captions the good samples have.
void print_images(const Json& json) {
  const auto images = json["images"].get<std::int64_t>(), captions = json["captions"].get<std::int64_t>();
  std::printf("%s images, %s captions%s\n", with_thousands(images).c_str(), with_thousands(captions).c_str(),
              images < json["read"].get<std::int64_t>()
                  ? ": samples that name the same image file are one image in evaluations"
                  : "");
  if (const auto broken = json["captions_with_line_breaks"].get<std::int64_t>(); broken > 0)
    std::printf("captions with line breaks: %s of %s; each is one text\n", with_thousands(broken).c_str(),
                with_thousands(captions).c_str());
}

/// If samples have no caption, prints their number. If there are also bad samples, adds the number and share of the samples that are bad or
/// have no caption.
void print_without_caption(const Looks& looks) {
  if (looks.captionless <= 0) return;
  const std::int64_t unusable = looks.bad + looks.captionless;
  const double share = static_cast<double>(unusable) / static_cast<double>(looks.all());
  const bool one = looks.captionless == 1;
  std::printf("%s %s without a caption: training on texts skips %s", with_thousands(looks.captionless).c_str(),
              one ? "sample" : "samples", one ? "it" : "them");
  if (looks.bad > 0)
    std::printf(", with the bad ones %s of %s (%.1f %%)", with_thousands(unusable).c_str(),
                with_thousands(looks.all()).c_str(), 100 * share);
  std::printf("\n");
}

/// Prints what settings of decoding would change.
void print_decoding(const Json& json) {
  if (const auto turned = json["exif_orientation"].get<std::int64_t>(); turned > 0)
    std::printf("EXIF orientation: %s of the images %s turned when shown; model.preprocessing.exif_rotation: true turns them, too\n",
                with_thousands(turned).c_str(), turned == 1 ? "is" : "are");
  if (const Json& gray = json["gray_16_bit"]; !gray.empty())
    std::printf("16-bit gray images: %s, with values up to %s; white is model.preprocessing.gray_range (65535)\n",
                with_thousands(gray["count"].get<std::int64_t>()).c_str(),
                with_thousands(gray["largest"].get<std::int64_t>()).c_str());
}

void print_report(const Json& json) {
  const Looks looks(json);
  std::printf("%s; %s\n", json["source"].get<std::string>().c_str(), describe(looks).c_str());
  print_images(json);
  print_without_caption(looks);
  if (json["fingerprint"].is_string()) std::printf("fingerprint %s\n", json["fingerprint"].get<std::string>().c_str());
  print_bars("bad samples by reason", json["bad"]);
  for (const auto& [reason, examples] : json["bad_examples"].items())
    for (const Json& example : examples) std::printf("  %s: %s\n", reason.c_str(), example.get<std::string>().c_str());
  if (!json["repeated"].empty()) std::printf("\nrepeated\n");
  for (const auto& [what, found] : json["repeated"].items())
    std::printf("  %s %s (first: %s)\n", with_thousands(found["count"].get<std::int64_t>()).c_str(),
                what == "pictures" ? "images with the bytes of an image of another name" : what.c_str(),
                found["first"].get<std::string>().c_str());
  print_decoding(json);
  std::printf("\nspread\n");
  print_spread("width", json["width"]);
  print_spread("height", json["height"]);
  print_spread("bytes per file", json["file_bytes"]);
  print_spread("characters per caption", json["characters_per_caption"]);
  print_bars("image sizes, width x height", json["image_sizes"]);
  print_bars("samples that have a ...", json["samples_with"]);
  print_bars("captions per sample", json["captions_per_sample"]);
  print_bars("words per caption", json["words_per_caption"]);
  print_bars("tokens per caption", json["tokens_per_caption"]);
  print_bars("objects per sample", json["objects_per_sample"]);
  print_bars("labels", json["labels"]);
  std::fflush(stdout);
}

int run_inspect(const InspectOptions& options) {
  const std::shared_ptr<Source> source = sources().make({options.source, settings_of(options.settings)}, "--source");
  InspectSettings settings = options.inspect;
  if (!options.tokenizer.empty())
    settings.tokenizer = tokenizers().make({options.tokenizer, settings_of(options.tokenizer_settings)}, "--tokenizer",
                                           TokenizerContext{});
  if (!options.sheet.empty()) settings.images = options.images;
  std::optional<Progress> progress(std::in_place, "inspect", "samples");
  const Inspection found =
      inspect(*source, settings, [&](std::int64_t done, std::int64_t total) { progress->show(done, total); });
  progress.reset();
  if (options.json)
    std::cout << found.report << "\n";
  else
    print_report(Json::parse(found.report));
  if (options.sheet.empty()) return 0;
  if (found.images.empty()) user_error("--sheet: no image could be read");
  if (const std::int64_t lost = undrawable_characters(found.images); lost > 0)
    log::warning("--sheet ", options.sheet, ": the sheet's font has only ASCII: ", with_thousands(lost),
                 lost == 1 ? " character is" : " characters are", " drawn as \"?\"; the captions themselves are intact");
  io::write_file(options.sheet, encode_png(contact_sheet(found.images, options.columns, options.cell)));
  return 0;
}

}  // namespace

Command inspect_command(CLI::App& program) {
  const auto options = std::make_shared<InspectOptions>();
  CLI::App* app =
      program.add_subcommand("inspect", "Counts what a data source holds, and draws a sheet of its images.");
  app->footer(
      "Example: tessera-data inspect --source shapes --set split=test --sheet sheet.png\n"
      "The fingerprint depends on the samples only, not on their order or on how they are split into shards.");
  app->add_option("--source", options->source, "registered name: " + join_names(sources().names()))->required();
  add_overrides(*app, "--set", options->settings, "a setting of the source");
  app->add_option("--tokenizer", options->tokenizer, "registered name; also counts the tokens of the captions");
  app->add_option("--tokenizer-set", options->tokenizer_settings, "a setting of the tokenizer, KEY=VALUE");
  app->add_option("--samples", options->inspect.samples,
                  "number of samples to look at, spread over the source (default: all, which the fingerprint requires)")
      ->check(positive_number());
  options->inspect.threads = std::max(1U, std::thread::hardware_concurrency());
  add_threads(*app, options->inspect.threads);
  app->add_option("--dump", options->inspect.dump,
                  "file to write with one JSON line per sample: key, captions, SHA-256 of the image, ...");
  app->add_option("--sheet", options->sheet, "PNG file for a contact sheet with captions");
  add_default(*app, "--pictures", options->images, "number of images on the sheet")->check(CLI::Range(1, 10'000));
  add_default(*app, "--columns", options->columns, "images per row of the sheet")->check(CLI::Range(1, 100));
  add_default(*app, "--cell", options->cell, "side of an image on the sheet, in pixels")->check(CLI::Range(16, 1024));
  app->add_flag("--json", options->json, "write JSON instead of tables");
  return {app, [options] { return run_inspect(*options); }};
}

}  // namespace tessera::tools
