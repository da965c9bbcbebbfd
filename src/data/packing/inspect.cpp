#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <sstream>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "src/base/digest.h"
#include "src/base/dump_utf8.h"
#include "src/data/formats/captions.h"
#include "src/data/image/decode.h"
#include "src/data/loading/sample_pass.h"
#include "src/data/packing/inspect.h"
#include "src/data/packing/pack.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

using StatisticsJson = nlohmann::ordered_json;
using Counts = std::map<std::int64_t, std::int64_t>;  // number of occurrences of each value

// The statistics of one sample. Worker threads compute them.
struct SampleFacts : SampleOutcome {
  std::int64_t height = 0, width = 0, bytes = 0;  // `bytes` is the size of the image file
  std::int64_t label = -1, objects = 0;
  std::int64_t line_breaks = 0;                         // number of captions with line breaks
  std::vector<std::int64_t> characters, words, tokens;  // for each caption, its number of characters, words and tokens
  std::vector<std::string> fields;                      // names of the fields that the sample has: "mask", "summary", ...
  std::uint64_t image = 0;                            // fingerprint of the image's bytes
  std::uint64_t image_id = 0;                           // as in Source::image_ids()
  std::vector<std::uint64_t> pairs;                     // for each caption, a fingerprint of the image and the caption together
  ImageNotes notes;
  SampleDigest digest;
  StatisticsJson dump;                                  // if requested: the sample's contents, with SHA-256 sums in place of images and masks
  Sample sample;                                        // if requested: the decoded sample
};

struct FactsWanted {
  std::shared_ptr<const Tokenizer> tokenizer;  // may be null
  bool dump = false;
  bool sample = false;
};

constexpr std::size_t kExamples = 3;
constexpr std::size_t kSizesListed = 100;

std::int64_t count_words(const std::string& text) {
  std::istringstream words(text);
  std::int64_t count = 0;
  for (std::string word; words >> word;) ++count;
  return count;
}

std::int64_t count_characters(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

std::string_view as_bytes(const std::vector<std::uint8_t>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size()};
}

template <class Key>
StatisticsJson to_json(const std::map<Key, std::int64_t>& counts) {
  StatisticsJson json = StatisticsJson::object();
  for (const auto& [key, count] : counts) json[concat(key)] = count;
  return json;
}

StatisticsJson dump_of(const Sample& sample) {
  const std::int64_t regions = sample.region_width > 0 ? static_cast<std::int64_t>(sample.regions.size()) / sample.region_width : 0;
  return {{"key", sample.key},
          {"image_bytes", sample.encoded.size()},
          {"image_sha256", sha256(sample.encoded.empty() ? as_bytes(sample.image.pixels) : sample.encoded)},
          {"captions", sample.captions}, {"summary", sample.summary}, {"object_tags", sample.object_tags},
          {"label", sample.label}, {"objects", sample.objects.size()}, {"regions", regions},
          {"mask_sha256", sample.mask.empty() ? "" : sha256(as_bytes(sample.mask))}};
}

// Decodes the sample and notes what it has.
void note_facts(Sample& sample, const FactsWanted& wanted, SampleFacts& out) {
  out.bytes = static_cast<std::int64_t>(sample.encoded.size());
  out.digest = compute_digest(sample);
  out.image = fingerprint(sample.encoded.empty() ? as_bytes(sample.image.pixels) : sample.encoded);
  if (wanted.dump) out.dump = dump_of(sample);
  for (const std::string& caption : sample.captions) {
    if (!is_utf8(caption)) throw SampleError("not_utf8", "sample " + sample.key + ": a caption is not UTF-8");
    out.characters.push_back(count_characters(caption));
    out.words.push_back(count_words(caption));
    out.line_breaks += has_line_break(strip(caption)) ? 1 : 0;
    out.pairs.push_back(fingerprint(caption, out.image));
    if (wanted.tokenizer) out.tokens.push_back(std::ssize(wanted.tokenizer->encode(caption)));
  }
  const bool captioned = std::ranges::any_of(sample.captions, [](const std::string& text) { return !strip(text).empty(); });
  for (const auto& [what, there] : {std::pair{"caption", captioned},
                                    {"label", sample.label >= 0 || !sample.class_name.empty()},
                                    {"mask", !sample.mask.empty()}, {"depth", !sample.depth.empty()},
                                    {"summary", !sample.summary.empty()}, {"object tags", !sample.object_tags.empty()},
                                    {"regions", !sample.regions.empty()}, {"hard negatives", !sample.negatives.empty()}})
    if (there) out.fields.emplace_back(what);
  out.objects = std::ssize(sample.objects);
  out.label = sample.label;
  if (sample.image.empty()) sample.image = take_image(sample, {}, &out.notes);
  out.height = sample.image.height;
  out.width = sample.image.width;
  if (wanted.sample) out.sample = std::move(sample);
}

// Returns a percentile: the value below which the given share of all values lies.
std::int64_t percentile(const Counts& counts, std::int64_t total, double share) {
  const auto wanted = static_cast<std::int64_t>(share * static_cast<double>(total - 1));
  std::int64_t before = 0;
  for (const auto& [value, count] : counts) {
    before += count;
    if (wanted < before) return value;
  }
  return counts.rbegin()->first;
}

StatisticsJson spread(const Counts& counts) {
  StatisticsJson json = StatisticsJson::object();
  std::int64_t total = 0;
  for (const auto& [value, count] : counts) total += count;
  if (total == 0) return json;
  json["least"] = counts.begin()->first;
  for (const auto& [name, share] : {std::pair{"5%", 0.05}, {"50%", 0.5}, {"95%", 0.95}})
    json[name] = percentile(counts, total, share);
  json["most"] = counts.rbegin()->first;
  return json;
}

// Collects statistics about the samples of a source.
class DatasetStatistics {
 public:
  void add(const SampleFacts& facts) {
    if (!facts.good()) {
      ++bad_[facts.bad_reason];
      std::vector<std::string>& examples = bad_examples_[facts.bad_reason];
      if (examples.size() < kExamples) examples.push_back(facts.bad_text);
      return;
    }
    ++read_;
    turned_ += facts.notes.orientation != 1 ? 1 : 0;
    if (facts.notes.largest_gray) ++largest_grays_[*facts.notes.largest_gray];
    fingerprint_.add(facts.key, facts.digest);
    ++image_sizes_[concat(facts.width, " x ", facts.height)];
    ++heights_[facts.height];
    ++widths_[facts.width];
    ++bytes_[facts.bytes];
    ++captions_[std::ssize(facts.characters)];
    line_breaks_ += facts.line_breaks;
    for (const std::int64_t count : facts.characters) ++characters_[count];
    for (const std::int64_t count : facts.words) ++words_[count];
    for (const std::int64_t count : facts.tokens) ++tokens_[count];
    if (facts.objects > 0) ++objects_[facts.objects];
    if (facts.label >= 0) ++labels_[facts.label];
    for (const std::string& what : facts.fields) ++fields_[what];
    const auto repeats = [&](const char* what, bool is_new) {
      if (is_new) return;
      auto& [count, first] = repeated_[what];
      if (count++ == 0) first = facts.key;
    };
    repeats("keys", keys_.insert(facts.key).second);
    const bool is_new_image = facts.image_id == 0 || image_ids_.insert(facts.image_id).second;
    if (is_new_image) {
      ++images_;
      repeats("pictures", contents_.insert(facts.image).second);
    }
    for (const std::uint64_t pair : facts.pairs) repeats("pairs of picture and caption", pairs_.insert(pair).second);
  }
  // Returns the statistics as JSON. `all` says whether all samples of the source were added; only then is there a fingerprint.
  StatisticsJson report(const Source& source, bool all) const {
    StatisticsJson json;
    json["source"] = source.describe();
    json["samples"] = source.size();
    json["read"] = read_;
    json["images"] = images_;
    json["captions"] = std::accumulate(captions_.begin(), captions_.end(), std::int64_t{0},
                                       [](std::int64_t sum, const auto& each) { return sum + each.first * each.second; });
    json["captions_with_line_breaks"] = line_breaks_;
    json["fingerprint"] = all ? StatisticsJson(fingerprint_.text()) : StatisticsJson();
    json["bad"] = to_json(bad_);
    json["bad_examples"] = bad_examples_;
    json["repeated"] = StatisticsJson::object();
    for (const auto& [what, found] : repeated_)
      json["repeated"][what] = {{"count", found.first}, {"first", found.second}};
    std::vector<std::pair<std::string, std::int64_t>> sizes(image_sizes_.begin(), image_sizes_.end());
    std::stable_sort(sizes.begin(), sizes.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    json["image_sizes"] = StatisticsJson::object();
    json["different_image_sizes"] = sizes.size();
    for (std::size_t i = 0; i < std::min(sizes.size(), kSizesListed); ++i)
      json["image_sizes"][sizes[i].first] = sizes[i].second;
    json["width"] = spread(widths_);
    json["height"] = spread(heights_);
    json["file_bytes"] = spread(bytes_);
    json["captions_per_sample"] = to_json(captions_);
    json["characters_per_caption"] = spread(characters_);
    json["words_per_caption"] = to_json(words_);
    json["tokens_per_caption"] = to_json(tokens_);
    json["objects_per_sample"] = to_json(objects_);
    json["labels"] = StatisticsJson::object();
    const std::vector<std::string> names = source.class_names();
    for (const auto& [label, count] : labels_)
      json["labels"][label < std::ssize(names) ? names[static_cast<std::size_t>(label)] : std::to_string(label)] = count;
    json["samples_with"] = to_json(fields_);
    json["exif_orientation"] = turned_;
    json["gray_16_bit"] = StatisticsJson::object();
    if (!largest_grays_.empty()) {
      std::int64_t count = 0;
      for (const auto& [largest, images] : largest_grays_) count += images;
      json["gray_16_bit"] = {{"count", count}, {"largest", largest_grays_.rbegin()->first}};
    }
    return json;
  }

 private:
  std::int64_t read_ = 0, images_ = 0, line_breaks_ = 0;
  std::int64_t turned_ = 0;  // images with an EXIF orientation other than 1
  Counts largest_grays_;                // of 16-bit gray images, by their largest value
  std::map<std::string, std::int64_t> bad_, image_sizes_, fields_;
  std::map<std::string, std::vector<std::string>> bad_examples_;
  Counts heights_, widths_, bytes_, captions_, characters_, words_, tokens_, objects_, labels_;
  std::unordered_set<std::string> keys_;
  std::unordered_set<std::uint64_t> image_ids_, contents_, pairs_;
  // what can repeat ("keys", "images", ...) -> the number of repetitions, and the key of the sample with the first repetition
  std::map<std::string, std::pair<std::int64_t, std::string>> repeated_;
  SetFingerprint fingerprint_;
};

}  // namespace

Inspection inspect(const Source& source, const InspectSettings& settings,
                   const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const std::int64_t size = source.size(), count = settings.samples > 0 ? std::min(settings.samples, size) : size;
  const FactsWanted wanted{settings.tokenizer, !settings.dump.empty(), settings.images > 0};
  const auto place = [size, count](std::int64_t i) { return i * size / count; };
  SamplePass<SampleFacts> pass(
      {.source = borrowed(source), .count = count, .threads = settings.threads, .ahead = 4 * settings.threads, .place = place},
      [wanted](Sample& sample, std::int64_t, SampleFacts& out) { note_facts(sample, wanted, out); });
  std::optional<io::AtomicFile> dump;
  if (wanted.dump) dump.emplace(settings.dump);
  Inspection out;
  DatasetStatistics statistics;
  const std::vector<std::uint64_t> image_ids = source.image_ids();
  for (std::int64_t i = 0; i < count; ++i) {
    SampleFacts facts = pass.next();
    if (!image_ids.empty()) facts.image_id = image_ids.at(static_cast<std::size_t>(place(i)));
    if (wanted.dump && !facts.good()) facts.dump = {{"key", facts.key}, {"bad", facts.bad_reason}};
    if (dump) dump->write(dump_utf8(facts.dump) + "\n");
    statistics.add(facts);
    // Keeps images at regular intervals, so that they are spread over the source.
    if (wanted.sample && facts.good() && std::ssize(out.images) <= i * settings.images / count)
      out.images.push_back(std::move(facts.sample));
    progress(i + 1, count);
  }
  if (dump) dump->commit();
  out.report = dump_utf8(statistics.report(source, count == size), 2);
  return out;
}

}  // namespace tessera
