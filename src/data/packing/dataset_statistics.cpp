#include "src/data/packing/dataset_statistics.h"

#include <algorithm>
#include <numeric>
#include <sstream>

#include "src/base/digest.h"
#include "src/data/formats/captions.h"
#include "src/data/image/sample_picture.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

using StatisticsJson = nlohmann::ordered_json;

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
  StatisticsJson json;
  json["key"] = sample.key;
  json["image_bytes"] = sample.encoded.size();
  json["image_sha256"] = sha256(sample.encoded.empty() ? as_bytes(sample.image.pixels) : sample.encoded);
  json["captions"] = sample.captions;
  json["summary"] = sample.summary;
  json["object_tags"] = sample.object_tags;
  json["label"] = sample.label;
  json["objects"] = sample.objects.size();
  json["regions"] =
      sample.region_width > 0 ? static_cast<std::int64_t>(sample.regions.size()) / sample.region_width : 0;
  json["mask_sha256"] = sample.mask.empty() ? "" : sha256(as_bytes(sample.mask));
  return json;
}

void note_facts(Sample& sample, const FactsWanted& wanted, SampleFacts& out) {
  out.key = sample.key;
  out.bytes = static_cast<std::int64_t>(sample.encoded.size());
  out.digest = digest_of(sample);
  out.picture = fingerprint(sample.encoded.empty() ? as_bytes(sample.image.pixels) : sample.encoded);
  if (wanted.dump) out.dump = dump_of(sample);
  for (const std::string& caption : sample.captions) {
    if (!is_utf8(caption)) throw SampleError("not_utf8", "sample " + sample.key + ": a caption is not UTF-8");
    out.characters.push_back(count_characters(caption));
    out.words.push_back(count_words(caption));
    out.line_breaks += has_line_break(strip(caption)) ? 1 : 0;
    out.pairs.push_back(fingerprint(caption, out.picture));
    if (wanted.tokenizer) out.tokens.push_back(std::ssize(wanted.tokenizer->encode(caption)));
  }
  const auto note = [&](const char* what, bool there) {
    if (there) out.fields.emplace_back(what);
  };
  note("caption", std::any_of(sample.captions.begin(), sample.captions.end(),
                              [](const std::string& text) { return !strip(text).empty(); }));
  note("label", sample.label >= 0 || !sample.class_name.empty());
  note("mask", !sample.mask.empty());
  note("depth", !sample.depth.empty());
  note("summary", !sample.summary.empty());
  note("object tags", !sample.object_tags.empty());
  note("regions", !sample.regions.empty());
  note("hard negatives", !sample.negatives.empty());
  out.objects = std::ssize(sample.objects);
  out.label = sample.label;
  if (sample.image.empty()) sample.image = take_image(sample, {}, &out.notes);
  out.height = sample.image.height;
  out.width = sample.image.width;
  if (wanted.sample) out.sample = std::move(sample);
}

// Returns a percentile: the value below which the given share of all values lies. `counts` maps each value to its number of occurrences.
std::int64_t percentile(const std::map<std::int64_t, std::int64_t>& counts, std::int64_t total, double share) {
  const auto wanted = static_cast<std::int64_t>(share * static_cast<double>(total - 1));
  std::int64_t before = 0;
  for (const auto& [value, count] : counts) {
    before += count;
    if (wanted < before) return value;
  }
  return counts.rbegin()->first;
}

}  // namespace

SampleFacts facts_of(const std::function<Sample()>& read, std::int64_t index, const FactsWanted& wanted) {
  SampleFacts out;
  out.key = concat("number ", index);
  try {
    Sample sample = read();
    note_facts(sample, wanted, out);
  } catch (const SampleError& error) {
    out.bad_reason = error.reason();
    out.bad_text = error.what();
    if (!error.key().empty()) out.key = error.key();
    if (wanted.dump) out.dump = {{"key", out.key}, {"bad", out.bad_reason}};
  }
  return out;
}

void DatasetStatistics::add(const SampleFacts& facts) {
  if (!facts.bad_reason.empty()) {
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
    repeats("pictures", pictures_.insert(facts.picture).second);
  }
  for (const std::uint64_t pair : facts.pairs) repeats("pairs of picture and caption", pairs_.insert(pair).second);
}

StatisticsJson DatasetStatistics::spread(const Counts& counts) {
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

StatisticsJson DatasetStatistics::report(const Source& source, bool all) const {
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

}  // namespace tessera
