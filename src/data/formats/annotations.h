#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <tessera/data/sample.h>

namespace tessera {

/// Reads a sample's JSON side file: captions from the named fields (a text or a list of texts; captions that the sample
/// already has are not added again), `objects` as shard_writer writes them, `negatives` (read_negatives()) and `regions`
/// (read_regions()). Other fields, and these in another form, are ignored. Returns false if the text is not JSON.
void read_annotations(const nlohmann::json& json, const std::vector<std::string>& caption_fields, Sample& sample);
bool read_annotations(std::string_view text, const std::vector<std::string>& caption_fields, Sample& sample);

/// Adds the hard negatives of a list: texts, or objects {kind, caption}. Ignores other items, and anything but a list.
void read_negatives(const nlohmann::json& list, std::vector<HardNegative>& out);

/// Adds the objects of a list of {box: [left, top, right, bottom] in pixels, phrase, negatives: [text, ...]}; fractional boxes
/// are extended to whole pixels. Ignores items without a box, and anything but a list. Returns what is wrong with the first
/// invalid box, for Sample::bad_boxes; empty: all are valid.
std::string read_regions(const nlohmann::json& list, std::vector<ObjectAnnotation>& out);
/// Whether read_regions() finds objects there.
bool holds_regions(const nlohmann::json& list);

/// Returns the names of the fields, at most `most`, in alphabetical order; empty if the text is not a JSON object.
std::vector<std::string> json_names(std::string_view text, std::size_t most);

/// Returns a field as text: a text or a number as written, a list of them joined by ", ". Empty if there is no such field.
std::string json_text(const nlohmann::json& json, const std::string& field);

}  // namespace tessera
