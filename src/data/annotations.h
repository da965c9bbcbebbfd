#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <tessera/data/sample.h>

namespace tessera {

/// Reads a sample's JSON side file: captions out of the named fields (a text or a list of texts; a caption that the
/// sample has already is not taken twice), and, as shard_writer writes them, `objects` and `negatives`. Other fields,
/// and these in another form, are passed over. False: not JSON.
bool read_annotations(std::string_view text, const std::vector<std::string>& caption_fields, Sample& sample);

}  // namespace tessera
