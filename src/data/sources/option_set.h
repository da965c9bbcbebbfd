#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/data/formats/paths.h"
#include <tessera/config/file_path.h>
#include <tessera/data/source.h>

namespace tessera {

/// How many images and texts an item has, and which of them match.
enum class OptionForm {
  choice,      // one image and several texts (the first text is correct), or one text and several images (the first image is correct)
  pairs,       // two images and two texts: the first image matches the first text, and the second image the second text
  paraphrase,  // an image and three texts; the first two texts mean the same and are correct
};

/// Images and texts that a model has to match.
struct OptionItem {
  std::vector<std::int64_t> images;  // indices into OptionSet::images
  std::vector<std::string> texts;
  std::string kind;       // kind of the item, such as "replace_rel"; empty: the benchmark has no kinds
  // items with the same `pair` are also scored as one unit, which is right if all its items are right; empty: no pair
  std::string pair = {};
  std::string set = {};  // items with the same `set` are also scored as one unit, like those of a pair; empty: no set
};

/// A benchmark of right and wrong options (Winoground, SugarCrepe, VALSE, ...).
struct OptionSet {
  OptionForm form = OptionForm::choice;
  std::vector<OptionItem> items;
  std::shared_ptr<const IndexedSource> images;  // all images, each once, in the order of their first use by an item
  std::map<std::string, std::int64_t> skipped;    // number of skipped items, keyed by reason: "no_text", "not_validated"
  std::string described;                          // "winoground examples.jsonl, 400 items"
};

struct OptionSettings {
  std::string layout = "options";
  PathList annotations;
  config::FilePath images;
  config::FilePath lexicon;
};

/// Returns the names of the layouts that read_options() can read.
const std::vector<std::string>& option_layouts();

template <class Visitor>
void fields(Visitor& v, OptionSettings& s) {
  v("layout", s.layout, "the benchmark's file layout", config::one_of(option_layouts()));
  v("annotations", s.annotations,
    "the benchmark's files as published; list all files if each holds one kind of item (SugarCrepe, VALSE)");
  v("images", s.images,
    "folder of the images. A name is looked for as written, without its folders, with the usual extensions "
    "(ex_0_img_0: ex_0_img_0.png) and, if it is a number, as COCO writes it (39: 000000000039.jpg)");
  v("lexicon", s.lexicon,
    "file of nouns and adjectives in lower case, one per line: the words that `aro_order` shuffles; other layouts need none");
}

/// Throws UserError naming file and item if a file has another layout, or if there are no items or no images. If an image is missing,
/// reading it from OptionSet::images throws SampleError.
OptionSet read_options(const OptionSettings& settings);

}  // namespace tessera
