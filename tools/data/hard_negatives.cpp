#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "src/base/dump_utf8.h"
#include "src/base/progress.h"
#include "src/data/packing/rule_negatives.h"
#include "tools/command_line.h"
#include "tools/data/command.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/data/source.h>
#include <tessera/io/atomic_file.h>

namespace tessera::tools {
namespace {

using Json = nlohmann::ordered_json;

struct NegativesOptions {
  std::string source;
  std::vector<std::string> settings;
  std::string out;
  std::string lexicon;
  std::uint64_t seed = 0;
  std::int64_t each = 1;
  bool all_captions = false;
};

/// The numbers of samples read and of negatives made from them, for the summary.
struct NegativesCount {
  std::int64_t samples = 0, without = 0, negatives = 0;
  std::map<std::string, std::int64_t> kinds, skipped;
};

Json region_of(const ObjectAnnotation& object, std::vector<std::string> negatives) {
  const auto [top, left, height, width] = object.box;
  for (const std::string& negative : object.negatives) negatives.push_back(negative);
  return {{"box", {left, top, left + width, top + height}}, {"phrase", object.phrase}, {"negatives", negatives}};
}

class LineWriter {
 public:
  explicit LineWriter(const NegativesOptions& options)
      : options_(options),
        rules_(options.lexicon.empty() ? std::string(default_negative_lexicon()) : io::read_file(options.lexicon),
               options.lexicon.empty() ? "the built-in lexicon" : options.lexicon) {}

  std::string line_of(const Sample& sample, std::int64_t index) {
    Random random(options_.seed, Purpose::negatives, {static_cast<std::uint64_t>(index)});
    std::vector<HardNegative> made;
    for (const std::string& caption : sample.captions) {
      for (HardNegative& negative : rules_.make(caption, options_.each, random)) made.push_back(std::move(negative));
      if (!options_.all_captions) break;
    }
    ++count_.samples;
    count_.without += made.empty() ? 1 : 0;
    count_.negatives += std::ssize(made);
    Json json = {{"image", sample.key}, {"caption", sample.captions}};
    for (const TextField& field : sample.texts)
      if (!json.contains(field.name)) json[field.name] = field.is_list ? Json(field.texts) : Json(field.texts.at(0));
    json["negatives"] = Json::array();
    for (const HardNegative& negative : sample.negatives) add(negative, json);
    for (const HardNegative& negative : made) {
      ++count_.kinds[negative.kind];
      add(negative, json);
    }
    for (const ObjectAnnotation& object : sample.objects) {
      if (object.phrase.empty() || object.box[2] <= 0 || object.box[3] <= 0) continue;
      std::vector<std::string> wrong;
      for (HardNegative& negative : rules_.make(object.phrase, options_.each, random))
        wrong.push_back(std::move(negative.caption));
      json["regions"].push_back(region_of(object, std::move(wrong)));
    }
    return dump_utf8(json) + "\n";
  }

  void skip(const SampleError& error) { ++count_.skipped[error.reason()]; }
  const NegativesCount& count() const { return count_; }

 private:
  static void add(const HardNegative& negative, Json& json) {
    json["negatives"].push_back({{"kind", negative.kind}, {"caption", negative.caption}});
  }

  const NegativesOptions& options_;
  NegativeRules rules_;
  NegativesCount count_;
};

int run_hard_negatives(const NegativesOptions& options) {
  const std::shared_ptr<Source> made = sources().make({options.source, settings_of(options.settings)}, "--source");
  const IndexedSource& source = indexed(*made);
  LineWriter lines(options);
  io::AtomicFile file(options.out);
  std::optional<Progress> progress(std::in_place, "hard-negatives", "samples");
  for (std::int64_t i = 0; i < source.size(); ++i) {
    try {
      source.will_read(i);
      file.write(lines.line_of(source.get(i), i));
    } catch (const SampleError& error) {
      lines.skip(error);
    }
    progress->show(i + 1, source.size());
  }
  progress.reset();
  const NegativesCount& count = lines.count();
  if (count.samples == 0) user_error(source.describe(), ": no sample can be read: ", describe_counts(count.skipped));
  file.commit();
  std::cout << options.out << ": " << with_thousands(count.samples) << " samples, " << with_thousands(count.negatives)
            << " hard negatives";
  if (!count.kinds.empty()) std::cout << " (" << describe_counts(count.kinds) << ")";
  std::cout << "; no rule applies to " << with_thousands(count.without) << " of the samples\n";
  if (!count.skipped.empty()) std::cout << "skipped: " << describe_counts(count.skipped) << "\n";
  return 0;
}

}  // namespace

Command hard_negatives_command(CLI::App& program) {
  const auto options = std::make_shared<NegativesOptions>();
  CLI::App* app = program.add_subcommand(
      "hard-negatives", "Writes a data source as JSON lines, adding hard negatives made from its captions by rules.");
  app->footer(
      "Example: tessera-data hard-negatives --source json_lines --set path=docci.jsonl --set images=pictures --out "
      "docci_negatives.jsonl\n"
      "The rules swap words of one class or replace them by others. The kinds are SugarCrepe's: swap_att, swap_obj,\n"
      "replace_att, replace_obj and replace_rel. The source json_lines reads the file. Its fields: image (the sample's key),\n"
      "caption, negatives, and regions if objects have phrases.");
  app->add_option("--source", options->source, "registered name: " + join_names(sources().names()))->required();
  add_overrides(*app, "--set", options->settings, "a setting of the source");
  app->add_option("--out", options->out, "the file of JSON lines to write")->required();
  app->add_option(
      "--lexicon", options->lexicon,
      "file with one word class per line, such as `att size: small, tiny | large, big`; kinds are att, obj and rel, and | "
      "separates words that exclude each other (default: a built-in lexicon of common words)");
  add_default(*app, "--each", options->each, "largest number of negatives of each kind per caption")->check(positive_number());
  add_default(*app, "--seed", options->seed, "seed of the random choices");
  app->add_flag("--all-captions", options->all_captions, "use all captions of a sample, not only the first");
  return {app, [options] { return run_hard_negatives(*options); }};
}

}  // namespace tessera::tools
