#pragma once

#include <string>
#include <vector>

#include "src/data/sources/options/option_builder.h"

namespace tessera {

/// The members of a JSON item that say what it asks; those of an item that is a list have numbers for names.
struct JsonOptionLayout {
  std::string name;
  std::vector<std::string> pictures;   // each the name of a picture, or a list of them
  std::vector<std::string> texts;      // each a text, or a list of them; the right ones first
  std::vector<std::string> kind = {};  // the first that is there; none: a file is a kind
  bool paraphrases = false;            // the first two texts are right
  bool sets_by_picture = false;        // the picture's name says with which others it counts (What's Up)
  bool word_orders = false;            // each text is right, and wrong with its words in other orders (ARO's COCO-Order)
};

/// The layout of this name; nullptr: it is none of JSON items that are alike.
const JsonOptionLayout* json_option_layout(const std::string& name);

/// Reads a file of items: a list, an object of them by name, or a line of JSON each. Throws UserError naming file and
/// item, and the members that it has and should have.
void read_json_options(const std::string& path, const JsonOptionLayout& layout, OptionBuilder& out);

/// FOIL's COCO captions, right ones and foils of one id (Shekhar et al. 2017).
void read_foil(const std::string& path, OptionBuilder& out);
/// SVO-Probes: a sentence, a picture that shows it and one that differs in subject, verb or object (Hendricks and
/// Nematzadeh 2021).
void read_svo_probes(const std::string& path, OptionBuilder& out);
/// MMVP-VLM: rows of number, pattern and statement, of which each two that follow each other are a pair (Tong et al. 2024).
void read_mmvp(const std::string& path, OptionBuilder& out);

}  // namespace tessera
