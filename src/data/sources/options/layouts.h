#pragma once

#include <string>
#include <vector>

#include "src/data/sources/options/option_builder.h"

namespace tessera {

/// Names of the members of a JSON item that hold its images and texts. If the item is a list, these names are indices.
struct JsonOptionLayout {
  std::string name;
  std::vector<std::string> pictures;   // members that hold the name of an image, or a list of names
  std::vector<std::string> texts;      // members that hold a text, or a list of texts; correct texts come before wrong ones
  // members that may hold the item's kind (the first existing member is used); if this list is empty, the file's name is the kind
  std::vector<std::string> kind = {};
  bool paraphrases = false;            // whether each item has two correct texts, which are its first two
  bool sets_by_picture = false;        // whether the name of an item's image determines the item's set and pair (What's Up)
  // whether the file holds only correct texts; if so, the wrong options for a text are its words in other orders (ARO's COCO-Order)
  bool word_orders = false;
};

/// Returns the layout of this name; nullptr if it is not a layout of uniform JSON items.
const JsonOptionLayout* json_option_layout(const std::string& name);

/// Reads a file of items: a list, an object that maps names to items, or one item per line. If a member is missing, throws UserError naming
/// the file, the item, the members that the item has, and those that it should have.
void read_json_options(const std::string& path, const JsonOptionLayout& layout, OptionBuilder& out);

/// Reads FOIL's COCO captions (Shekhar et al. 2017). A correct caption and its foils share an id.
void read_foil(const std::string& path, OptionBuilder& out);
/// Reads SVO-Probes. Each item has a sentence, an image that shows it, and an image in which the subject, verb or object differs (Hendricks
/// and Nematzadeh 2021).
void read_svo_probes(const std::string& path, OptionBuilder& out);
/// Reads MMVP-VLM, a table with the columns number, pattern and statement. Every two consecutive rows form a pair (Tong et al. 2024).
void read_mmvp(const std::string& path, OptionBuilder& out);

}  // namespace tessera
