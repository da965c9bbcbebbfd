#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <tessera/data/sample.h>

namespace tessera {

/// Reads a sample's JSON side file into `sample`: captions from the fields `caption_fields` (each a text or a list of texts), `objects` as
/// sample_files() writes them, `negatives` (read_negatives()) and `regions` (read_regions()). Captions that the sample already has are not
/// added again. Ignores other fields, and values of other types. The overload for a text returns false if the text is not JSON.
void read_annotations(const nlohmann::json& json, const std::vector<std::string>& caption_fields, Sample& sample);
bool read_annotations(std::string_view text, const std::vector<std::string>& caption_fields, Sample& sample);

/// Adds the hard negatives of a list to `out`. Each item is a text or an object {kind, caption}; other items are ignored. Does
/// nothing if `list` is not a list.
void read_negatives(const nlohmann::json& list, std::vector<HardNegative>& out);

/// Adds the annotated objects of a list to `out`. Each item is {box: [left, top, right, bottom] in pixels, phrase, negatives:
/// [text, ...]}; items without a box are ignored. Fractional boxes are extended to whole pixels. Does nothing if `list` is not
/// a list. Returns an error message about the first invalid box, for Sample::bad_boxes, or an empty text if all boxes are
/// valid.
std::string read_regions(const nlohmann::json& list, std::vector<ObjectAnnotation>& out);
/// Returns whether `list` is a list with an item that has a box.
bool holds_regions(const nlohmann::json& list);

/// Returns the names of a JSON object's fields, at most `most` of them, in alphabetical order. Empty if the text is not a JSON
/// object.
std::vector<std::string> json_names(std::string_view text, std::size_t most);

/// Returns a field as text. A text or number stays as written; a list of texts and numbers is joined by ", ". Empty if there is
/// no such field.
std::string json_text(const nlohmann::json& json, const std::string& field);

}  // namespace tessera
