#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <tessera/config/file_path.h>
#include <tessera/data/formats/paths.h>
#include <tessera/data/source.h>

namespace tessera {

/// What belongs together in an item.
enum class OptionForm {
  choice,      // one picture and several texts, or several pictures and one text: the first is right
  pairs,       // two pictures and two texts: the first with the first, the second with the second
  paraphrase,  // a picture and three texts: the first two say the same and are right
};

/// Pictures and texts of which a model is asked what belongs together.
struct OptionItem {
  std::vector<std::int64_t> pictures;  // samples of OptionSet::pictures
  std::vector<std::string> texts;
  std::string kind;       // "replace_rel"; empty: the benchmark has no kinds
  std::string pair = {};  // items of one pair, or one set, count together as well; empty: it is in none
  std::string set = {};
};

/// A benchmark of wrong options beside right ones (Winoground, SugarCrepe, VALSE, ...).
struct OptionSet {
  OptionForm form = OptionForm::choice;
  std::vector<OptionItem> items;
  std::shared_ptr<const IndexedSource> pictures;  // each once, in the order in which items name them
  std::map<std::string, std::int64_t> skipped;    // items left out, by reason: "no_text", "not_validated"
  std::string described;                          // "winoground examples.jsonl, 400 items"
};

struct OptionSettings {
  std::string layout = "options";
  PathList annotations;
  config::FilePath images;
  config::FilePath lexicon;
};

/// Names of the layouts that read_options() knows.
const std::vector<std::string>& option_layouts();

template <class Visitor>
void fields(Visitor& v, OptionSettings& s) {
  v("layout", s.layout, "whose files these are", config::one_of(option_layouts()));
  v("annotations", s.annotations,
    "the benchmark's files as it publishes them; where a file is a kind of its own (SugarCrepe, VALSE), all of them");
  v("images", s.images,
    "folder of the pictures. A name is looked for as the file has it, without its folders, with the usual endings "
    "(ex_0_img_0: ex_0_img_0.png) and, a number, as COCO writes it (39: 000000000039.jpg)");
  v("lexicon", s.lexicon,
    "nouns and adjectives, lower case, a file with one a line: which words `aro_order` shuffles; other layouts need none");
}

/// Throws UserError naming file and item: a file of another layout, no items, no pictures. A picture that is missing is
/// a SampleError of `pictures`.
OptionSet read_options(const OptionSettings& settings);

}  // namespace tessera
