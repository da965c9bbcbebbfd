#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <tessera/data/sample.h>

namespace tessera {

/// Returns the text or list of texts in a field of a JSON object; nullopt if the field is missing or null. Throws SampleError
/// `bad_text_field` naming key and field if the field holds anything else.
std::optional<FieldText> field_text(const nlohmann::json& json, const std::string& name, const std::string& key);

/// Returns the named fields that the object has, in the order of `names`. Throws as field_text() does.
std::vector<TextField> text_fields_of(const nlohmann::json& json, const std::vector<std::string>& names,
                                      const std::string& key);

/// Uses the texts of the sample's first nonempty text field as captions. The sample must not have captions yet.
void set_captions_from_fields(Sample& sample);

}  // namespace tessera
