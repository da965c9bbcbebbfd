#include "src/data/sample_parts.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include <nlohmann/json.hpp>

#include "src/data/annotations.h"
#include "src/data/class_names.h"
#include "src/data/image_file.h"
#include "src/data/regions.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr std::string_view kJsonField = "json.";  // "json.summary" is the field summary of the json part

/// The parts of one sample with its json part parsed when it is first asked for.
class PartTexts {
 public:
  explicit PartTexts(const SampleParts& parts) : parts_(parts) {}

  /// Null: there is no json part, or it is not JSON.
  const nlohmann::json* json() {
    if (!parsed_ && parts_.has("json")) parsed_ = nlohmann::json::parse(parts_.read("json"), nullptr, false);
    return parsed_ && !parsed_->is_discarded() ? &*parsed_ : nullptr;
  }

  /// The first of these parts or fields that is there, without white space around it; or nothing.
  std::string first(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      if (parts_.has(name)) return std::string(strip(parts_.read(name)));
      if (!name.starts_with(kJsonField) || json() == nullptr) continue;
      std::string text = json_text(*json(), name.substr(kJsonField.size()));
      if (!text.empty()) return text;
    }
    return {};
  }

 private:
  const SampleParts& parts_;
  std::optional<nlohmann::json> parsed_;
};

std::optional<std::string> first_part(const SampleParts& parts, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (parts.has(name)) return parts.read(name);
  return std::nullopt;
}

}  // namespace

PartMapper::PartMapper(const WebDatasetSettings& settings, const std::string& first_shard) : settings_(settings) {
  std::error_code ignored;
  const std::filesystem::path beside = std::filesystem::path(first_shard).parent_path() / "classes.txt";
  if (settings.classes)
    classes_ = read_class_names(*settings.classes);
  else if (!first_shard.empty() && std::filesystem::exists(beside, ignored))
    classes_ = read_class_names(beside.string());
}

Sample PartMapper::load(const std::string& key, const SampleParts& parts) const {
  Sample sample;
  sample.key = key;
  PartTexts texts(parts);
  std::optional<std::string> image = first_part(parts, settings_.image_keys);
  if (!image)
    throw SampleError("no_image", "has no picture; expected one of the parts " + join_names(settings_.image_keys));
  sample.encoded = std::move(*image);
  if (sample.encoded.empty()) throw SampleError("empty_image", "the image has 0 bytes");
  read_captions(parts, texts.json(), sample);
  sample.summary = texts.first(settings_.summary_keys);
  sample.object_tags = texts.first(settings_.object_keys);
  if (const std::string label = texts.first(settings_.label_keys); !label.empty())
    sample.label = parse_label(label, classes_);
  if (const auto mask = first_part(parts, settings_.mask_keys)) sample.mask = decode_mask(*mask).values;
  if (const auto regions = first_part(parts, settings_.region_keys))
    set_regions(*regions, settings_.region_tensor, sample);
  return sample;
}

std::int64_t PartMapper::count_captions(const SampleParts& parts) const {
  const bool in_json = parts.has("json") && !settings_.json_captions.empty();
  if (!in_json && !settings_.caption_lines)
    return std::count_if(settings_.caption_keys.begin(), settings_.caption_keys.end(),
                         [&](const std::string& name) { return parts.has(name); });
  Sample sample;
  read_captions(parts, PartTexts(parts).json(), sample);
  return std::ssize(sample.captions);
}

void PartMapper::read_captions(const SampleParts& parts, const nlohmann::json* json, Sample& sample) const {
  for (const std::string& name : settings_.caption_keys)
    if (parts.has(name)) add_captions(parts.read(name), sample);
  if (json != nullptr)
    read_annotations(*json, settings_.json_captions, sample);
  else if (parts.has("json") && sample.captions.empty())
    throw SampleError("bad_json", "its json part is not JSON");
}

void PartMapper::add_captions(const std::string& text, Sample& sample) const {
  if (!settings_.caption_lines) {
    sample.captions.emplace_back(strip(text));
    return;
  }
  for (const std::string& line : split(text, '\n'))
    if (!strip(line).empty()) sample.captions.emplace_back(strip(line));
}

}  // namespace tessera
