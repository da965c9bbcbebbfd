#include "src/data/sources/rows.h"

#include <algorithm>
#include <charconv>
#include <mutex>
#include <set>

#include "src/base/dump_utf8.h"
#include "src/base/printable.h"
#include "src/data/formats/captions.h"
#include "src/data/formats/data_files.h"
#include "src/data/formats/json_values.h"
#include "src/data/formats/regions.h"
#include "src/data/image/image_file.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

using Json = nlohmann::json;
using Names = RowSettings::Names;

std::vector<std::string> captions_in(const Json& value, bool sentences) {
  std::vector<std::string> out;
  const auto add = [&](const Json& text) {
    if (!text.is_string()) return;
    if (!sentences) return add_caption(text.get_ref<const std::string&>(), out);
    for (const std::string& sentence : caption_sentences(text.get_ref<const std::string&>())) add_caption(sentence, out);
  };
  if (value.is_array())
    for (const Json& each : value) add(each);
  else
    add(value);
  return out;
}

void erase_known(std::vector<std::string>& texts, const std::vector<std::string>& known) {
  std::erase_if(texts, [&](const std::string& text) { return contains(known, text); });
}

/// Returns the text or list of texts in a text field; nullopt for null.
std::optional<FieldText> field_text(const Json& value, const std::string& name, const std::string& key) {
  const auto wrong = [&](const std::string& what) {
    throw SampleError("bad_text_field", concat("sample ", printable(key), ": its field ", printable(name), " (text_fields) is ", what,
                                               "; expected a text or a list of texts"));
  };
  if (value.is_null()) return std::nullopt;
  if (value.is_string()) return FieldText{{value.get<std::string>()}, /*is_list=*/false};
  if (!value.is_array()) wrong(concat("of type ", value.type_name()));
  FieldText out{{}, /*is_list=*/true};
  for (const Json& each : value) {
    if (!each.is_string()) wrong(concat("a list with an item of type ", each.type_name()));
    out.texts.push_back(each.get<std::string>());
  }
  return out;
}

std::optional<std::string> first_file(const Row& row, const Names& names, const char* missing) {
  for (const std::string& name : names)
    if (auto bytes = row.file(name, missing)) return bytes;
  return std::nullopt;
}

}  // namespace

config::Node with_present_names(const config::Node& settings, const std::string& path) {
  config::Node out = settings;
  for (const char* field : {"image", "caption", "label", "summary", "object", "mask", "region", "negatives", "regions"}) {
    const std::string former = concat(field, "_key"), present = former + "s";
    const config::Node* const value = settings.find(former);
    if (value == nullptr) continue;
    out.set(present, value->is_scalar() && value->text().empty() ? config::Node::sequence({}, value->mark()) : *value);
    out.erase(former);
    static std::mutex mutex;
    static std::set<std::string> noted;
    const std::lock_guard lock(mutex);
    if (noted.insert(former).second)
      log::warning(config::origin_of(*value, config::join_path(path, former)), ": is now called ", present, "; the former name still works");
  }
  return out;
}

std::optional<std::string> Row::text(const std::string& name) const {
  const Json found = value(name);
  return found.is_null() ? std::nullopt : std::optional(json_text(found));
}

std::string first_text(const Row& row, const Names& names) {
  for (const std::string& name : names)
    if (auto text = row.text(name)) return *std::move(text);
  return {};
}

void set_captions_from_fields(Sample& sample) {
  for (auto field = sample.texts.begin(); sample.captions.empty() && field != sample.texts.end(); ++field)
    for (const std::string& text : field->texts) add_caption(text, sample.captions);
}

void set_label(const std::string& text, const std::vector<std::string>& classes, Sample& sample) {
  const auto refuse = [](const auto&... parts) { throw SampleError("bad_label", concat(parts...)); };
  std::int64_t label = -1;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), label);
  if (result.ec == std::errc() && result.ptr == text.data() + text.size()) {
    if (label < -1 || (!classes.empty() && label >= std::ssize(classes)))
      refuse("its class index is ", label, " (label_keys), but there are ", classes.size(), " classes (classes)");
    sample.label = label;
  } else if (classes.empty()) {
    sample.class_name = text;
  } else {
    const auto found = std::ranges::find(classes, text);
    const bool known = found != classes.end();
    if (!known || std::find(found + 1, classes.end(), text) != classes.end())
      refuse("its class \"", printable(text, 60), "\" (label_keys) is ", known ? "the name of several classes" : "neither an index nor a name",
             " in the file of classes (classes)");
    sample.label = found - classes.begin();
  }
}

std::string describe_rows(const RowSettings& s, std::size_t classes, const std::vector<std::string>& needed) {
  const std::map<std::string, std::pair<const Names*, const char*>> keys = {
      {"image", {&s.image_keys, "image_keys"}},           {"caption", {&s.caption_keys, "caption_keys"}},
      {"captions", {&s.text_fields, "text_fields"}},      {"label", {&s.label_keys, "label_keys"}},
      {"mask", {&s.mask_keys, "mask_keys"}},              {"depth", {&s.depth_keys, "depth_keys"}},
      {"summary", {&s.summary_keys, "summary_keys"}},     {"objects", {&s.object_keys, "object_keys"}},
      {"regions", {&s.region_keys, "region_keys"}},       {"negatives", {&s.negatives_keys, "negatives_keys"}},
      {"phrases", {&s.regions_keys, "regions_keys"}},     {"phrase_negatives", {&s.regions_keys, "regions_keys"}}};
  std::string out;
  for (const std::string& field : needed) {
    const auto found = keys.find(field);
    if (found == keys.end()) continue;
    const auto& [names, setting] = found->second;
    out += concat(out.empty() ? "" : ", ", names->empty() ? "no field is named for " : "", field,
                  names->empty() ? "" : concat(field.ends_with('s') ? " are" : " is", " looked for in ", join_names(*names)), " (", setting, ")");
    if (field == "label" && !names->empty())
      out += classes == 0 ? ", and no file lists the classes (classes)" : concat(", and ", classes, " class names are known (classes)");
  }
  return out;
}

RowMapper::RowMapper(RowSettings settings, Format format, std::vector<std::string> classes_there)
    : settings_(std::move(settings)), format_(std::move(format)), classes_(std::move(classes_there)) {
  if (settings_.classes) classes_ = read_class_names(*settings_.classes);
}

void RowMapper::read_texts(const Row& row, Sample& sample) const {
  for (const std::string& name : settings_.caption_keys) {
    std::vector<std::string> own = captions_in(row.value(name), format_.sentences);
    if (format_.each_once) erase_known(own, sample.captions);
    if (!format_.side_prefix.empty() && name.starts_with(format_.side_prefix)) erase_known(sample.captions, own);
    std::ranges::move(own, std::back_inserter(sample.captions));
  }
  if (const std::string problem = row.bad_side(); !problem.empty()) {
    if (sample.captions.empty()) throw SampleError("bad_json", problem);
    if (!noted_side_.exchange(true))
      log::warning("sample ", printable(sample.key), ": ", problem, ": only the other members of this sample and others like it are used");
  }
  if (!format_.is_list) note_line_breaks(sample);
  for (const std::string& name : settings_.text_fields)
    if (auto text = field_text(row.value(format_.side_prefix + name), name, sample.key)) sample.texts.push_back({*std::move(text), name});
  if (!format_.is_list) set_captions_from_fields(sample);
}

void RowMapper::note_line_breaks(const Sample& sample) const {
  breaks_.add(sample.captions);
  if (!sample.captions.empty() && breaks_.are_many() && !noted_breaks_.exchange(true))
    log::warning(format_.name, ": so far, ", breaks_.describe(), format_.break_hint);
}

void RowMapper::read_fields(const Row& row, Sample& sample) const {
  read_texts(row, sample);
  const Json* const side = row.side();
  const auto read_lists = [&](const Names& names, const auto& read) {
    for (const std::string& name : names) {
      const Json list = side != nullptr ? side->value(name, Json()) : row.value(name);
      if (!list.is_null()) read(list);
    }
  };
  if (side != nullptr) {
    sample.fields = dump_utf8(*side);
    read_lists({"objects"}, [&](const Json& list) { read_objects(list, sample.objects); });
  }
  read_lists(settings_.negatives_keys, [&](const Json& list) { read_negatives(list, sample.negatives); });
  read_lists(settings_.regions_keys, [&](const Json& list) { sample.bad_boxes = read_regions(list, sample.objects); });
  sample.summary = first_text(row, settings_.summary_keys);
  sample.object_tags = first_text(row, settings_.object_keys);
}

void RowMapper::read(const Row& row, Sample& sample) const {
  read_fields(row, sample);
  if (const std::string label = first_text(row, settings_.label_keys); !label.empty()) set_label(label, classes_, sample);
  if (auto image = first_file(row, settings_.image_keys, "no_image")) {
    if (image->empty()) throw SampleError("empty_image", "the image has 0 bytes");
    sample.encoded = *std::move(image);
  }
  if (const auto mask = first_file(row, settings_.mask_keys, "bad_mask")) sample.mask = decode_mask(*mask).values;
  if (const auto depth = first_file(row, settings_.depth_keys, "bad_depth")) sample.depth = decode_depth(*depth, settings_.depth_units);
  if (const auto regions = first_file(row, settings_.region_keys, "no_regions")) set_regions(*regions, settings_.region_tensor, sample);
}

}  // namespace tessera
