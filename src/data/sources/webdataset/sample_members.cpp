#include "src/data/sources/webdataset/sample_members.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include <nlohmann/json.hpp>

#include "src/data/formats/annotations.h"
#include "src/data/formats/captions.h"
#include "src/data/formats/class_names.h"
#include "src/data/formats/python_json.h"
#include "src/data/formats/regions.h"
#include "src/data/formats/sample_file.h"
#include "src/data/formats/text_fields.h"
#include "src/data/image/image_file.h"
#include "src/io/stand_in.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr std::string_view kJsonField = "json.";  // "json.summary" means the field summary of the json member

/// Reads the texts of one sample; parses its json member at the first use.
class MemberTexts {
 public:
  explicit MemberTexts(const SampleMembers& members) : members_(members) {}

  /// Returns null if there is no json member or it is not JSON.
  const nlohmann::json* json() {
    if (!parsed_ && members_.has("json")) parsed_ = parse_python_json(members_.read("json"));
    return parsed_ && !parsed_->is_discarded() ? &*parsed_ : nullptr;
  }

  /// Returns the text of the first of these members or fields that exists, stripped of white space. Returns "" if none exists.
  std::string first(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      if (members_.has(name)) return std::string(strip(members_.read(name)));
      if (!name.starts_with(kJsonField) || json() == nullptr) continue;
      std::string text = json_text(*json(), name.substr(kJsonField.size()));
      if (!text.empty()) return text;
    }
    return {};
  }

 private:
  const SampleMembers& members_;
  std::optional<nlohmann::json> parsed_;
};

std::optional<std::string> first_member(const SampleMembers& members, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (members.has(name)) return members.read(name);
  return std::nullopt;
}

std::string not_json(std::string_view bytes) {
  const std::string known = io::describe_stand_in(bytes);
  return concat("its json member is not JSON", known.empty() ? "" : ": ", known);
}

/// Calls read(named) and adds the names of shard and sample to the errors of `read`. The function `named` adds these names to any text.
template <class Read>
auto read_named(const std::string& shard, const std::string& key, const Read& read) {
  const auto named = [&](const std::string& text) { return concat(shard, ": sample ", key, ": ", text); };
  try {
    return read(named);
  } catch (const SampleError& error) {
    throw SampleError(error.reason(), named(error.what()), key);
  }
}

}  // namespace

MemberMapper::MemberMapper(const WebDatasetSettings& settings, const std::string& first_shard) : settings_(settings) {
  std::error_code ignored;
  const std::filesystem::path beside = std::filesystem::path(first_shard).parent_path() / "classes.txt";
  if (settings.classes)
    classes_ = read_class_names(*settings.classes);
  else if (!first_shard.empty() && std::filesystem::exists(beside, ignored))
    classes_ = read_class_names(beside.string());
}

Sample MemberMapper::load(const std::string& shard, const std::string& key, const SampleMembers& members) const {
  return read_named(shard, key, [&](const auto& named) {
    Sample sample = read(key, members);
    if (sample.encoded.empty())
      sample.no_image = named("has no image; expected one of the members " + join_names(settings_.image_keys));
    return sample;
  });
}

std::vector<std::string> MemberMapper::captions(const std::string& shard, const std::string& key,
                                                const SampleMembers& members) const {
  return read_named(shard, key, [&](const auto&) { return read_captions(key, members); });
}

Sample MemberMapper::read(const std::string& key, const SampleMembers& members) const {
  Sample sample;
  sample.key = key;
  MemberTexts texts(members);
  if (std::optional<std::string> image = first_member(members, settings_.image_keys)) {
    if (image->empty()) throw SampleError("empty_image", "the image has 0 bytes");
    sample.encoded = std::move(*image);
  }
  read_texts(members, texts.json(), sample);
  sample.summary = texts.first(settings_.summary_keys);
  sample.object_tags = texts.first(settings_.object_keys);
  if (const std::string label = texts.first(settings_.label_keys); !label.empty())
    set_label(label, classes_, "label_keys", sample);
  if (const auto mask = first_member(members, settings_.mask_keys)) sample.mask = decode_mask(*mask).values;
  if (const auto depth = first_member(members, settings_.depth_keys))
    sample.depth = decode_depth(*depth, settings_.depth_units);
  if (const auto regions = first_member(members, settings_.region_keys))
    set_regions(*regions, settings_.region_tensor, sample);
  return sample;
}

std::int64_t MemberMapper::count_captions(const std::string& key, const SampleMembers& members) const {
  const auto texts = std::count_if(settings_.caption_keys.begin(), settings_.caption_keys.end(),
                                   [&](const std::string& name) { return members.has(name); });
  // If several members may hold captions, they must be read, because blank captions do not count. A single member need not be read: if it
  // is blank, the sample is bad anyway.
  const bool in_json =
      members.has("json") && (!settings_.json_captions.empty() || (!settings_.text_fields.empty() && texts == 0));
  if (!in_json && !settings_.caption_lines && texts <= 1) return texts;
  return std::ssize(read_captions(key, members));
}

std::vector<std::string> MemberMapper::read_captions(const std::string& key, const SampleMembers& members) const {
  Sample sample;
  sample.key = key;
  MemberTexts texts(members);
  read_texts(members, texts.json(), sample);
  return std::move(sample.captions);
}

std::string MemberMapper::describe_keys(const std::vector<std::string>& fields) const {
  const std::map<std::string, std::pair<const std::vector<std::string>*, const char*>> keys = {
      {"image", {&settings_.image_keys, "image_keys"}},
      {"caption", {&settings_.caption_keys, "caption_keys"}},
      {"captions", {&settings_.text_fields, "text_fields"}},
      {"label", {&settings_.label_keys, "label_keys"}},
      {"mask", {&settings_.mask_keys, "mask_keys"}},
      {"depth", {&settings_.depth_keys, "depth_keys"}},
      {"summary", {&settings_.summary_keys, "summary_keys"}},
      {"objects", {&settings_.object_keys, "object_keys"}},
      {"regions", {&settings_.region_keys, "region_keys"}}};
  std::vector<std::string> places;
  for (const std::string& field : fields) {
    const auto found = keys.find(field);
    if (found == keys.end()) continue;
    const auto& [names, setting] = found->second;
    if (names->empty() && field == "captions") {
      places.push_back("no field of the json member is named for captions (text_fields)");
      continue;
    }
    places.push_back(concat(field, " is looked for in ", join_names(*names), " (", setting, ")"));
    if (field == "caption")
      places.back() += concat(" and in the json member's ", join_names(settings_.json_captions), " (json_captions)");
    if (field == "label")
      places.back() += classes_.empty() ? ", and no file lists the classes (classes)"
                                        : concat(", and ", classes_.size(), " class names are known (classes)");
  }
  std::string text;
  for (const std::string& place : places) text += (text.empty() ? "" : ", ") + place;
  return text;
}

void MemberMapper::read_texts(const SampleMembers& members, const nlohmann::json* json, Sample& sample) const {
  read_captions(members, json, sample);
  tell_line_breaks(sample);
  if (json == nullptr || settings_.text_fields.empty()) return;
  sample.texts = text_fields_of(*json, settings_.text_fields, sample.key);
  if (sample.captions.empty()) set_captions_from_fields(sample);
}

void MemberMapper::read_captions(const SampleMembers& members, const nlohmann::json* json, Sample& sample) const {
  for (const std::string& name : settings_.caption_keys)
    if (members.has(name)) add_captions(name, members.read(name), sample);
  if (json != nullptr)
    read_annotations(*json, settings_.json_captions, sample);
  else if (members.has("json") && sample.captions.empty())
    throw SampleError("bad_json", not_json(members.read("json")));
  else if (members.has("json") && !told_bad_json_.exchange(true))
    log::warning("sample ", sample.key,
                 ": its json member is not JSON: only the other members of this sample and others like it are used");
}

void MemberMapper::tell_line_breaks(const Sample& sample) const {
  breaks_.add(sample.captions);
  if (!sample.captions.empty() && breaks_.are_many() && !told_line_breaks_.exchange(true))
    log::warning("sample ", sample.key, " and others: so far, ", breaks_.describe(),
                 ": for text members, caption_lines: true makes each line a caption");
}

void MemberMapper::add_captions(const std::string& name, std::string bytes, Sample& sample) const {
  const std::string text = checked_text(std::move(bytes), "its member " + name);
  if (!settings_.caption_lines) return add_caption(text, sample.captions);
  for (const std::string& line : split(text, '\n')) add_caption(line, sample.captions);
}

}  // namespace tessera
