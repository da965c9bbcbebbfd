#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <tessera/data/sample.h>

namespace tessera {

/// Adds the annotated objects of a list, as sample_files() writes them, to `out`. Each item has a box [top, left, height, width]. Invalid items
/// are ignored; so is a value that is not a list. The same holds for the functions below.
void read_objects(const nlohmann::json& list, std::vector<ObjectAnnotation>& out);

/// Adds the hard negatives of a list to `out`. Each item is a text or an object {kind, caption}.
void read_negatives(const nlohmann::json& list, std::vector<HardNegative>& out);

/// Adds the annotated objects of a list to `out`. Each item is {box: [left, top, right, bottom] in pixels, phrase, negatives: [text, ...]}.
/// Fractional boxes are extended to whole pixels. Returns an error message about the first invalid box, for Sample::bad_boxes, or an empty
/// text if all boxes are valid.
std::string read_regions(const nlohmann::json& list, std::vector<ObjectAnnotation>& out);
/// Returns whether `list` is a list with an item that has a box.
bool holds_regions(const nlohmann::json& list);

/// Returns the names of a JSON object's members, at most `most` of them, in alphabetical order. Empty for other values.
std::vector<std::string> json_names(const nlohmann::json& json, std::size_t most);

/// Returns a value as text. A text or number stays as written; a list of texts and numbers is joined by ", ". Empty for other values.
std::string json_text(const nlohmann::json& value);

}  // namespace tessera
