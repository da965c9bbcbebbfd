#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <tessera/data/sample.h>

namespace tessera {

/// Reads a sample's JSON side file: captions out of the named fields (a text or a list of texts; a caption that the
/// sample has already is not taken twice), `objects` as shard_writer writes them, `negatives` (read_negatives()) and
/// `regions` (read_regions()). Other fields, and these in another form, are passed over. False: not JSON.
void read_annotations(const nlohmann::json& json, const std::vector<std::string>& caption_fields, Sample& sample);
bool read_annotations(std::string_view text, const std::vector<std::string>& caption_fields, Sample& sample);

/// Adds the hard negatives of a list: texts, or objects {kind, caption}. Other items, and what is no list, are passed over.
void read_negatives(const nlohmann::json& list, std::vector<HardNegative>& out);

/// Adds the objects of a list of {box: [left, top, right, bottom] in pixels, phrase, negatives: [text, ...]}; a box with
/// fractions becomes the pixels that it touches. Items without a box, and what is no list, are passed over. Returns what is
/// wrong with the first box that is none, as Sample::bad_boxes says it; empty: nothing.
std::string read_regions(const nlohmann::json& list, std::vector<ObjectAnnotation>& out);
/// Whether read_regions() finds objects there.
bool holds_regions(const nlohmann::json& list);

/// Names of the fields, at most so many, in the order of the alphabet; none for what is no object.
std::vector<std::string> json_names(std::string_view text, std::size_t most);

/// A field as text: a text or a number as it stands, a list of them joined by ", ". Empty when there is none.
std::string json_text(const nlohmann::json& json, const std::string& field);

}  // namespace tessera
