#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <tessera/data/sample.h>

namespace tessera {

/// Reads a sample's JSON side file: captions out of the named fields (a text or a list of texts; a caption that the
/// sample has already is not taken twice), and, as shard_writer writes them, `objects` and `negatives`. Other fields,
/// and these in another form, are passed over. False: not JSON.
void read_annotations(const nlohmann::json& json, const std::vector<std::string>& caption_fields, Sample& sample);
bool read_annotations(std::string_view text, const std::vector<std::string>& caption_fields, Sample& sample);

/// Names of the fields, at most so many, in the order of the alphabet; none for what is no object.
std::vector<std::string> json_names(std::string_view text, std::size_t most);

/// A field as text: a text or a number as it stands, a list of them joined by ", ". Empty when there is none.
std::string json_text(const nlohmann::json& json, const std::string& field);

}  // namespace tessera
