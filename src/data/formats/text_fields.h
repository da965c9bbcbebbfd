#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <tessera/data/sample.h>

namespace tessera {

/// The text or list of texts of this field of a JSON object; null: it is missing or null. Throws SampleError
/// `bad_text_field` naming key and field when it is something else.
std::optional<FieldText> field_text(const nlohmann::json& json, const std::string& name, const std::string& key);

/// Those of these fields that the object has, in the order of their names. Throws as field_text().
std::vector<TextField> text_fields_of(const nlohmann::json& json, const std::vector<std::string>& names,
                                      const std::string& key);

/// Of a sample whose data have no captions as such, its captions: the texts of the first field that has any.
void set_captions_from_fields(Sample& sample);

}  // namespace tessera
