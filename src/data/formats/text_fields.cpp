#include "src/data/formats/text_fields.h"

#include <nlohmann/json.hpp>

#include "src/base/printable.h"
#include "src/data/formats/captions.h"
#include <tessera/base/error.h>
#include <tessera/data/source.h>

namespace tessera {

std::optional<FieldText> field_text(const nlohmann::json& json, const std::string& name, const std::string& key) {
  const auto found = json.find(name);  // end() if json is not an object
  if (found == json.end() || found->is_null()) return std::nullopt;
  const nlohmann::json& value = *found;
  const auto wrong = [&](const std::string& what) {
    throw SampleError("bad_text_field", concat("sample ", printable(key), ": its field ", printable(name),
                                               " (text_fields) is ", what, "; expected a text or a list of texts"));
  };
  FieldText out;
  if (value.is_string()) {
    out.texts.push_back(value.get<std::string>());
    return out;
  }
  if (!value.is_array()) wrong(concat("of type ", value.type_name()));
  out.is_list = true;
  for (const nlohmann::json& each : value) {
    if (!each.is_string()) wrong(concat("a list with an item of type ", each.type_name()));
    out.texts.push_back(each.get<std::string>());
  }
  return out;
}

std::vector<TextField> text_fields_of(const nlohmann::json& json, const std::vector<std::string>& names,
                                      const std::string& key) {
  std::vector<TextField> out;
  for (const std::string& name : names)
    if (auto text = field_text(json, name, key)) out.push_back({std::move(*text), name});
  return out;
}

void set_captions_from_fields(Sample& sample) {
  for (const TextField& field : sample.texts) {
    for (const std::string& text : field.texts) add_caption(text, sample.captions);
    if (!sample.captions.empty()) return;
  }
}

}  // namespace tessera
