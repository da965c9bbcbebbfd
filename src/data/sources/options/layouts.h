#pragma once

#include <string>
#include <vector>

#include "src/data/sources/options/option_builder.h"

namespace tessera {

/// The members of a JSON item that hold its images and texts. If an item is a list, names are indices.
struct JsonOptionLayout {
  std::string name;
  std::vector<std::string> pictures;   // each the name of an image, or a list of names
  std::vector<std::string> texts;      // each a text, or a list of texts; the right ones first
  std::vector<std::string> kind = {};  // the first existing one is used; empty: each file is a kind
  bool paraphrases = false;            // the first two texts are right
  bool sets_by_picture = false;        // the image's name determines the set and pair that it belongs to (What's Up)
  bool word_orders = false;            // texts are right; their words in other orders are the wrong options (ARO's COCO-Order)
};

/// Returns the layout of this name; nullptr if it is not a layout of uniform JSON items.
const JsonOptionLayout* json_option_layout(const std::string& name);

/// Reads a file of items: a list, an object of items by name, or one item per line. Throws UserError naming file and item, and
/// the members that it has and should have.
void read_json_options(const std::string& path, const JsonOptionLayout& layout, OptionBuilder& out);

/// Reads FOIL's COCO captions: right captions and foils that share an id (Shekhar et al. 2017).
void read_foil(const std::string& path, OptionBuilder& out);
/// Reads SVO-Probes: a sentence, an image that shows it and one that differs in subject, verb or object (Hendricks and
/// Nematzadeh 2021).
void read_svo_probes(const std::string& path, OptionBuilder& out);
/// Reads MMVP-VLM: rows of number, pattern and statement; every two consecutive rows are a pair (Tong et al. 2024).
void read_mmvp(const std::string& path, OptionBuilder& out);

}  // namespace tessera
