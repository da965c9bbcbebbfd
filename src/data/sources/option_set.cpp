#include "src/data/sources/option_set.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

#include "src/base/digest.h"
#include "src/base/printable.h"
#include "src/data/formats/data_files.h"
#include "src/data/formats/json_values.h"
#include "src/data/formats/table.h"
#include "src/data/image/encode.h"
#include "src/data/image/orientation.h"
#include "src/data/image/decode.h"
#include "src/data/sources/listed_images.h"
#include "src/io/stand_in.h"
#include <tessera/base/error.h>
#include <tessera/base/random.h>
#include <tessera/base/text.h>
#include <tessera/config/shipped.h>
#include <tessera/data/image/transforms.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Words = std::vector<std::string>;
using ItemBody = std::function<void(const Json& item, const std::string& place)>;

/// Names of the members of a JSON item that hold its images and texts. If the item is a list, these names are indices.
struct OptionLayout {
  std::string name;
  std::vector<std::string> images;   // members that hold the name of an image, or a list of names
  std::vector<std::string> texts;      // members that hold a text, or a list of texts; correct texts come before wrong ones
  std::vector<std::string> kind = {};  // members that may hold the item's kind (the first existing one is used); empty: the file's name
  bool paraphrases = false;            // whether each item has two correct texts, which are its first two
  bool sets_by_image = false;        // whether the name of an item's image determines the item's set and pair (What's Up)
  // whether the file holds only correct texts; if so, the wrong options for a text are its words in other orders (ARO's COCO-Order)
  bool word_orders = false;
};

const std::vector<OptionLayout>& json_layouts() {
  static const std::vector<OptionLayout> layouts = {
      {"options", {"image"}, {"options"}, {"kind"}},
      {"sugarcrepe", {"filename"}, {"caption", "negative_caption"}},
      {.name = "sugarcrepe_pp", .images = {"filename"}, .texts = {"caption", "caption2", "negative_caption"}, .paraphrases = true},
      {"winoground", {"image_0", "image_1"}, {"caption_0", "caption_1"}, {"collapsed_tag", "tag"}},
      {"colorswap", {"image_1", "image_2"}, {"caption_1", "caption_2"}},
      {"valse", {"image_file"}, {"caption", "foil"}},
      {"aro", {"image_path"}, {"true_caption", "false_caption"}, {"relation_name", "attributes"}},
      {.name = "aro_order", .images = {"image"}, .texts = {"caption"}, .word_orders = true},
      {.name = "whatsup", .images = {"image_path"}, .texts = {"caption_options"}, .sets_by_image = true},
      {"whatsup_qa", {"0"}, {"1", "2"}},
      {"cola", {"0", "2"}, {"1", "3"}}};
  return layouts;
}

// Splits a caption into lower-case words as ARO does, at white space and `marks`. Commas and apostrophes stay with their words.
Words words_of(std::string caption) {
  constexpr std::string_view marks = ".!\"()*#:;~";
  for (char& c : caption) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '\n' || c == '\t' || marks.find(c) != std::string_view::npos) c = ' ';
  }
  Words words = split(caption, ' ');
  std::erase(words, std::string());
  return words;
}

std::string sentence_of(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// Shuffles the words at `places` and leaves all others in place.
Words shuffled_at(Words words, const std::vector<std::size_t>& places, Random& random) {
  Words moved;
  for (const std::size_t place : places) moved.push_back(words[place]);
  random.shuffle(moved);
  for (std::size_t i = 0; i < places.size(); ++i) words[places[i]] = moved[i];
  return words;
}

// Returns a word in the form used by the lexicon: "cat" for "cat,".
std::string bare(std::string word) {
  std::erase_if(word, [](char c) { return c == ',' || c == '\'' || c == '?'; });
  return word;
}

/// Makes wrong word orders of a caption (ARO's order tasks, Yuksekgonul et al. 2023, section 2.3). `lexicon` has nouns and adjectives in lower
/// case. Returns the caption in lower case and without punctuation, then up to four other orders of its words. Each of these shuffles one
/// thing: the nouns and adjectives, all other words, the order of the caption's runs of three words, or the words within each run. Orders
/// equal to the caption's own are left out. The same caption always yields the same orders.
std::vector<std::string> word_orders(const std::string& caption, const std::set<std::string>& lexicon) {
  constexpr int tries_of_each = 20;  // number of attempts to find a different order, which may not exist if words are repeated
  const Words words = words_of(caption);
  std::vector<std::size_t> named, others;
  for (std::size_t i = 0; i < words.size(); ++i) (lexicon.contains(bare(words[i])) ? named : others).push_back(i);
  std::vector<Words> runs;
  for (std::size_t i = 0; i < words.size(); ++i) (i % 3 == 0 ? runs.emplace_back() : runs.back()).push_back(words[i]);
  const auto order_of = [&](std::size_t kind, Random& random) {
    if (kind < 2) return shuffled_at(words, kind == 0 ? named : others, random);
    std::vector<Words> moved = runs;
    if (kind == 2) random.shuffle(moved);
    Words out;
    for (Words& run : moved) {
      if (kind == 3) random.shuffle(run);
      out.insert(out.end(), run.begin(), run.end());
    }
    return out;
  };
  std::vector<std::string> texts = {sentence_of(words)};
  for (std::size_t kind = 0; kind < 4; ++kind) {
    Random random(0, Purpose::shuffle, {crc32(texts[0]), kind});
    Words order = words;
    for (int tries = 0; tries < tries_of_each && order == words; ++tries) order = order_of(kind, random);
    if (order != words) texts.push_back(sentence_of(order));
  }
  return texts;
}

/// The images of a benchmark. Some are parts of larger images.
class OptionImages final : public ListedImages {
 public:
  OptionImages(ImageList list, std::vector<std::optional<Box>> parts) : ListedImages(std::move(list)), parts_(std::move(parts)) {}

  Sample get(std::int64_t index) const override {
    Sample sample = ListedImages::get(index);
    const std::optional<Box>& part = parts_.at(static_cast<std::size_t>(index));
    if (!part) return sample;
    ImageNotes notes;
    Image whole = take_image(sample, {}, &notes);
    const auto [top, left, height, width] = *part;
    const auto row = [&](std::int64_t place) { return std::clamp<std::int64_t>(place, 0, whole.height); };
    const auto column = [&](std::int64_t place) { return std::clamp<std::int64_t>(place, 0, whole.width); };
    const Box box = {row(top), column(left), row(top + height) - row(top), column(left + width) - column(left)};
    if (box[2] <= 0 || box[3] <= 0)
      throw SampleError("bad_box", concat("sample ", sample.key, ": the part at row ", top, ", column ", left, " is outside the image"),
                        sample.key);
    sample.image = crop(whole, box);
    if (notes.orientation == 1) return sample;
    sample.encoded = with_orientation(encode_png(sample.image), notes.orientation);  // so that exif_rotation turns the part
    sample.image = {};
    return sample;
  }

 private:
  std::vector<std::optional<Box>> parts_;  // the part of its file that each image shows; null: the whole file
};

/// Collects the items of a benchmark and their images. An image used by several items is stored once.
class OptionBuilder {
 public:
  explicit OptionBuilder(const OptionSettings& settings) : settings_(settings) {}

  /// Returns the index of an image, or of a part of it, and adds it if it is new.
  std::int64_t image(const std::string& name, const std::optional<Box>& part = {}) {
    const auto [found, is_new] = numbers_.emplace(std::pair(name, part), std::ssize(parts_));
    if (is_new) {
      list_.images.emplace_back().name = find_image(settings_.images, name);
      parts_.push_back(part);
    }
    return found->second;
  }

  /// Adds an item. An item with a blank text is skipped. `place` is the item's place in the file, for messages. Throws UserError if
  /// the item does not have a known form, or has another form than the earlier items.
  void add(OptionItem item, const std::string& place) {
    for (std::string& text : item.texts) text = std::string(strip(text));
    if (std::ranges::any_of(item.texts, &std::string::empty)) return skip("no_text");
    take_form(item, place);
    set_.items.push_back(std::move(item));
  }

  /// Returns the words of the lexicon that the layout needs. Throws UserError if none is set.
  std::set<std::string> lexicon() const {
    if (settings_.lexicon.empty())
      user_error("options: lexicon is not set; layout ", settings_.layout, " needs a file of nouns and adjectives, one per line (",
                 config::shipped_folder(), "/lexicons/nouns_adjectives_small.txt has some)");
    config::require(settings_.lexicon);
    const std::vector<std::string> words = read_list(settings_.lexicon);
    return {words.begin(), words.end()};
  }

  void skip(const std::string& reason) { ++set_.skipped[reason]; }
  void expect_paraphrases() { set_.form = OptionForm::paraphrase; }

  /// Returns the set. `files` are the annotation files. Throws UserError if there are no items.
  OptionSet finished(const std::vector<std::string>& files) && {
    if (set_.items.empty()) user_error(files.at(0), ": holds no items of layout ", settings_.layout);
    list_.described = concat(settings_.layout, " ", first_and_more(files, "files"));
    list_.folder = settings_.images;
    list_.tables = files;
    set_.described = concat(list_.described, ", ", with_thousands(std::ssize(set_.items)), " items");
    set_.images = std::make_shared<OptionImages>(std::move(list_), std::move(parts_));
    return std::move(set_);
  }

 private:
  void take_form(const OptionItem& item, const std::string& place) {
    const std::size_t images = item.images.size(), texts = item.texts.size();
    if (set_.form == OptionForm::paraphrase) {
      if (images == 1 && texts == 3) return;
      user_error(place, ": has ", images, " images and ", texts, " texts; expected one and three");
    }
    const bool pairs = images == 2 && texts == 2;
    if (!pairs && !(images == 1 && texts > 1) && !(texts == 1 && images > 1))
      user_error(place, ": has ", images, " images and ", texts,
                 " texts; expected one image with several texts, several images with one text, or two of each");
    const OptionForm form = pairs ? OptionForm::pairs : OptionForm::choice;
    if (!set_.items.empty() && form != set_.form)
      user_error(place, pairs ? ": has two images and two texts" : ": has one right option",
                 ", unlike the items before; expected items of one form");
    set_.form = form;
  }

  const OptionSettings& settings_;
  OptionSet set_;
  ImageList list_;
  std::vector<std::optional<Box>> parts_;
  std::map<std::pair<std::string, std::optional<Box>>, std::int64_t> numbers_;  // indices of images, by name and part
};

/// If `item` is an object, returns its member `name`. If `item` is a list, returns the entry whose index is `name`. Returns null if there
/// is none.
const Json* member_of(const Json& item, const std::string& name) {
  if (item.is_object()) {
    const auto found = item.find(name);
    return found == item.end() ? nullptr : &*found;
  }
  const bool number = name.find_first_not_of("0123456789") == std::string::npos;
  return item.is_array() && number && std::stoul(name) < item.size() ? &item[std::stoul(name)] : nullptr;
}

/// Calls the body for the items of a file: a list, an object that maps names to items, or one item per line. A file with one line is itself
/// an item: an object that has at least one of the layout's text members.
void for_items(const std::string& path, const OptionLayout& layout, const ItemBody& body) {
  const std::string text = io::read_data_file(path);
  const Json whole = Json::parse(text, nullptr, false);
  if (whole.is_discarded()) {
    for_each_line(text, [&](const std::string& line, std::int64_t number) {
      const std::string place = concat(path, ":", number);
      const Json item = Json::parse(line, nullptr, false);
      if (item.is_discarded()) user_error(place, ": is not JSON; expected a list of items, an object of items, or one item per line");
      body(item, place);
    });
  } else if (whole.is_array()) {
    for (std::size_t i = 0; i < whole.size(); ++i) body(whole[i], concat(path, ": item ", i));
  } else if (!whole.is_object()) {
    user_error(path, ": expected a list or an object of items, got ", whole.type_name());
  } else if (std::ranges::any_of(layout.texts, [&](const std::string& name) { return whole.contains(name); })) {
    body(whole, concat(path, ":1"));
  } else {
    for (const auto& [name, item] : whole.items()) body(item, concat(path, ": ", printable(name, 60)));
  }
}

/// Returns the texts in some members of an item. The value of a member is one text or a list of texts. An image may be given as a number.
std::vector<std::string> texts_in(const Json& item, const std::string& place, const OptionLayout& layout,
                                  const std::vector<std::string>& members) {
  std::vector<std::string> out;
  for (const std::string& name : members) {
    const Json* const value = member_of(item, name);
    if (value == nullptr) {
      std::vector<std::string> expected = layout.images;
      expected.insert(expected.end(), layout.texts.begin(), layout.texts.end());
      const std::vector<std::string> there = json_names(item, 20);
      user_error(place, ": has no ", name, "; layout ", layout.name, " has ", join_names(expected), ", this item has ",
                 item.is_array()     ? concat("a list of ", item.size())
                 : !item.is_object() ? item.type_name()
                 : there.empty()     ? "an empty object"
                                     : printable(join_names(there), 300));
    }
    for (const Json& each : value->is_array() ? *value : Json::array({*value})) {
      if (!each.is_string() && !each.is_number_integer())
        user_error(place, ": ", name, ": expected a text or a list of texts, got ", each.type_name());
      out.push_back(each.is_string() ? each.get<std::string>() : each.dump());
    }
  }
  return out;
}

/// Returns the part of the image that an item is about (ARO).
std::optional<Box> part_of(const Json& item) {
  Box box{};
  const std::array<const char*, 4> names = {"bbox_y", "bbox_x", "bbox_h", "bbox_w"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Json* const value = member_of(item, names[i]);
    if (value == nullptr || !value->is_number()) return std::nullopt;
    box[i] = static_cast<std::int64_t>(value->get<double>());
  }
  return box;
}

/// Determines an item's set and pair from the name of its image. A set of What's Up shows two objects in four relations, which form two
/// opposite pairs: cup_left_of_chair.jpeg, cup_right_of_chair.jpeg, cup_on_chair.jpeg, cup_under_chair.jpeg (or in-front_of and behind).
void take_set(const std::string& image, OptionItem& item) {
  const Words words = split(fs::path(image).stem().string(), '_');
  if (words.size() < 3) return;
  item.set = words.front() + " " + words.back();
  item.pair = item.set + (words[1] == "left" || words[1] == "right" ? " beside" : " otherwise");
}

void read_json_options(const std::string& path, const OptionLayout& layout, OptionBuilder& out) {
  if (layout.paraphrases) out.expect_paraphrases();
  const std::set<std::string> lexicon = layout.word_orders ? out.lexicon() : std::set<std::string>();
  for_items(path, layout, [&](const Json& json, const std::string& place) {
    OptionItem item{{}, texts_in(json, place, layout, layout.texts), layout.kind.empty() ? fs::path(path).stem().string() : ""};
    const auto kind = std::ranges::find_if(layout.kind, [&](const std::string& name) { return member_of(json, name) != nullptr; });
    if (kind != layout.kind.end()) item.kind = json_text(*member_of(json, *kind));
    const std::vector<std::string> images = texts_in(json, place, layout, layout.images);
    // VALSE's annotators may not have agreed that the foil is wrong.
    if (const Json* const votes = member_of(json, "mturk"); votes != nullptr && votes->is_object() && votes->value("caption", 3) < 2)
      return out.skip("not_validated");
    for (const std::string& image : images) item.images.push_back(out.image(image, part_of(json)));
    if (layout.sets_by_image) take_set(images.front(), item);
    if (!layout.word_orders) return out.add(std::move(item), place);
    for (const std::string& caption : std::exchange(item.texts, {})) {
      OptionItem each = item;
      each.texts = word_orders(caption, lexicon);
      if (each.texts.size() < 2)
        out.skip("one_order");  // such as a single word
      else
        out.add(std::move(each), place);
    }
  });
}

/// Reads FOIL's COCO captions (Shekhar et al. 2017). A correct caption and its foils share an id.
void read_foil(const std::string& path, OptionBuilder& out) {
  struct Captions {
    std::int64_t image = 0;
    std::string right;
    std::vector<std::string> foils;
  };
  std::map<std::int64_t, std::string> files;  // image files, by id
  std::map<std::int64_t, Captions> captions;  // a right caption and its foils, by their common id
  for_each_item(path, {{"images", [&](const JsonItem& item) { files[item.number("id")] = item.text("file_name"); }},
                       {"annotations", [&](const JsonItem& item) {
                          Captions& own = captions[item.number("id")];
                          own.image = item.number("image_id");
                          (item.flag("foil") ? own.foils.emplace_back() : own.right) = item.text("caption");
                        }}});
  for (const auto& [id, own] : captions) {
    const std::string place = concat(path, ": caption ", id);
    const auto file = files.find(own.image);
    if (file == files.end()) user_error(place, ": belongs to image ", own.image, ", which `images` does not list");
    if (own.right.empty() || own.foils.empty()) {
      out.skip("no_pair");
      continue;
    }
    for (const std::string& foil : own.foils) out.add({{out.image(file->second)}, {own.right, foil}, {}}, place);
  }
}

/// Reads SVO-Probes. Each item has a sentence, an image that shows it, and an image in which the subject, verb or object differs (Hendricks
/// and Nematzadeh 2021).
void read_svo_probes(const std::string& path, OptionBuilder& out) {
  Table table(path, ',');
  const auto column = [&](const char* name) { return table.column(name, "layout svo_probes"); };
  const std::size_t sentence = column("sentence"), right = column("pos_image_id"), wrong = column("neg_image_id");
  const std::map<std::string, std::size_t> kinds = {
      {"subject", column("subj_neg")}, {"verb", column("verb_neg")}, {"object", column("obj_neg")}};
  const std::set<std::string_view> yes = {"True", "true", "TRUE", "1", "1.0"};  // as Python and pandas write it
  for (std::vector<std::string> row; table.next(row);) {
    const std::string place = concat(path, ":", table.line());
    OptionItem item{{}, {row[sentence]}, {}};
    for (const auto& [name, number] : kinds)
      if (yes.contains(strip(row[number]))) item.kind = name;
    for (const std::size_t image : {right, wrong}) {
      const std::string name(strip(row[image]));
      if (name.empty()) user_error(place, ": names no image (column ", table.columns()[image], ")");
      item.images.push_back(out.image(name));
    }
    out.add(std::move(item), place);
  }
}

/// Moves the right option, which is `options[right]`, before the wrong ones.
template <class Option>
void put_first(std::vector<Option>& options, std::int64_t right, const std::string& place) {
  if (right < 0 || right >= std::ssize(options))
    user_error(place, ": its right option is ", right, ", but there are ", options.size(), " options");
  std::rotate(options.begin(), options.begin() + right, options.begin() + right + 1);
}

/// Reads NegBench's multiple-choice questions, a table with an image, captions and the index of the right one (Alhamoud et al. 2025). The
/// right caption's template is the kind: positive, negative or hybrid.
void read_negbench(const std::string& path, OptionBuilder& out) {
  Table table(path, ',');
  const std::size_t image = table.column("image_path", "layout negbench"), right = table.column("correct_answer", "layout negbench");
  std::vector<std::size_t> captions;
  std::optional<std::size_t> kind;
  for (std::size_t i = 0; i < table.columns().size(); ++i) {
    if (table.columns()[i] == concat("caption_", captions.size())) captions.push_back(i);
    if (table.columns()[i] == "correct_answer_template") kind = i;
  }
  for (std::vector<std::string> row; table.next(row);) {
    const std::string place = concat(path, ":", table.line()), number(strip(row[right]));
    if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos || number.size() > 3)
      user_error(place, ": correct_answer: expected the number of a caption, got ", printable(number, 60));
    OptionItem item{{out.image(row[image])}, {}, kind ? std::string(strip(row[*kind])) : ""};
    for (const std::size_t caption : captions) item.texts.push_back(row[caption]);
    put_first(item.texts, std::stol(number), place);
    out.add(std::move(item), place);
  }
}

/// Reads SPEC (Peng et al. 2024): image2text.json has images with several texts, text2image.json texts with several images. The kind is the
/// folder of the file, such as "absolute_size", in which the images are.
void read_spec(const std::string& path, OptionBuilder& out) {
  const fs::path file(path);
  const std::string kind = file.parent_path().filename().string();
  const bool of_texts = file.stem() == "image2text";
  if (!of_texts && file.stem() != "text2image") user_error(path, ": layout spec has files named image2text.json and text2image.json");
  const OptionLayout layout = {"spec", {}, {"query", "keys", "label"}};
  for_items(path, layout, [&](const Json& json, const std::string& place) {
    const std::string query = texts_in(json, place, layout, {"query"}).at(0);
    std::vector<std::string> keys = texts_in(json, place, layout, {"keys"});
    const Json* const label = member_of(json, "label");
    if (label == nullptr || !label->is_number_integer()) user_error(place, ": label: expected the number of an option");
    put_first(keys, label->get<std::int64_t>(), place);
    OptionItem item{{}, of_texts ? keys : Words{query}, kind};
    for (const std::string& image : of_texts ? Words{query} : keys)
      item.images.push_back(out.image((fs::path(kind) / image).generic_string()));
    out.add(std::move(item), place);
  });
}

/// Reads VL-CheckList (Zhao et al. 2022): lists of an image, right texts and wrong ones, of which its own code compares the first two. The
/// kind is the file's folder and name, such as "vaw_color".
void read_vl_checklist(const std::string& path, OptionBuilder& out) {
  const fs::path file(path);
  const std::string kind = concat(file.parent_path().filename().string(), "_", file.stem().string());
  const OptionLayout item_layout = {"vl_checklist", {"0"}, {"1"}}, text_layout = {"vl_checklist", {}, {"POS", "NEG"}};
  for_items(path, item_layout, [&](const Json& json, const std::string& place) {
    const std::string image = texts_in(json, place, item_layout, {"0"}).at(0);
    const Json* const texts = member_of(json, "1");
    OptionItem item{{out.image(image)}, {}, kind};
    for (const char* name : {"POS", "NEG"}) {
      const std::vector<std::string> some = texts_in(texts == nullptr ? Json() : *texts, place, text_layout, {name});
      item.texts.push_back(some.empty() ? "" : some.front());
    }
    out.add(std::move(item), place);
  });
}

/// Reads MMVP-VLM, a table with the columns number, pattern and statement. Every two consecutive rows form a pair (Tong et al. 2024).
void read_mmvp(const std::string& path, OptionBuilder& out) {
  Table table(path, ',');
  if (table.columns().size() < 3)
    user_error(path, ": has the columns ", join_names(table.columns()), "; layout mmvp has a number, a pattern and a statement");
  OptionItem item;
  for (std::vector<std::string> row; table.next(row);) {
    if (item.images.empty()) item.kind = std::string(strip(row[1]));
    item.images.push_back(out.image((fs::path(item.kind) / strip(row[0])).generic_string()));
    item.texts.push_back(row[2]);
    if (item.images.size() == 2) out.add(std::exchange(item, {}), concat(path, ":", table.line()));
  }
  if (!item.images.empty()) user_error(path, ": its last row has no partner; every two rows are a pair");
}

}  // namespace

const std::vector<std::string>& option_layouts() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const OptionLayout& layout : json_layouts()) out.push_back(layout.name);
    out.insert(out.end(), {"svo_probes", "foil", "mmvp", "negbench", "spec", "vl_checklist"});
    return out;
  }();
  return names;
}

OptionSet read_options(const OptionSettings& settings) {
  if (settings.annotations.items.empty()) user_error("options: annotations is not set; expected the files of layout ", settings.layout);
  if (settings.images.empty()) user_error("options: images is not set; expected the folder of the images");
  config::require(settings.images);
  OptionBuilder builder(settings);
  const std::vector<std::string> paths = expand_paths(settings.annotations, ".json");
  const auto json = std::ranges::find(json_layouts(), settings.layout, &OptionLayout::name);
  for (const std::string& path : paths)
    if (settings.layout == "svo_probes")
      read_svo_probes(path, builder);
    else if (settings.layout == "foil")
      read_foil(path, builder);
    else if (settings.layout == "mmvp")
      read_mmvp(path, builder);
    else if (settings.layout == "negbench")
      read_negbench(path, builder);
    else if (settings.layout == "spec")
      read_spec(path, builder);
    else if (settings.layout == "vl_checklist")
      read_vl_checklist(path, builder);
    else if (json != json_layouts().end())
      read_json_options(path, *json, builder);
    else
      user_error("there is no layout of options ", settings.layout, suggestion(settings.layout, option_layouts()));
  return std::move(builder).finished(paths);
}

}  // namespace tessera
