#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>

#include <nlohmann/json.hpp>

#include "src/base/printable.h"
#include "src/data/formats/annotations.h"
#include "src/data/sources/options/layouts.h"
#include "src/data/sources/options/word_orders.h"
#include "src/io/stand_in.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

using Json = nlohmann::json;
using ItemBody = std::function<void(const Json& item, const std::string& place)>;

const std::vector<JsonOptionLayout>& json_layouts() {
  static const std::vector<JsonOptionLayout> layouts = {
      {"options", {"image"}, {"options"}, {"kind"}},
      {"sugarcrepe", {"filename"}, {"caption", "negative_caption"}},
      {.name = "sugarcrepe_pp",
       .pictures = {"filename"},
       .texts = {"caption", "caption2", "negative_caption"},
       .paraphrases = true},
      {"winoground", {"image_0", "image_1"}, {"caption_0", "caption_1"}, {"collapsed_tag", "tag"}},
      {"colorswap", {"image_1", "image_2"}, {"caption_1", "caption_2"}},
      {"valse", {"image_file"}, {"caption", "foil"}},
      {"aro", {"image_path"}, {"true_caption", "false_caption"}, {"relation_name", "attributes"}},
      {.name = "aro_order", .pictures = {"image"}, .texts = {"caption"}, .word_orders = true},
      {.name = "whatsup", .pictures = {"image_path"}, .texts = {"caption_options"}, .sets_by_picture = true},
      {"whatsup_qa", {"0"}, {"1", "2"}},
      {"cola", {"0", "2"}, {"1", "3"}}};
  return layouts;
}

/// If `item` is an object, returns its member `name`. If `item` is a list, returns the entry whose index is `name`. Returns null if there
/// is none.
const Json* member_of(const Json& item, const std::string& name) {
  if (item.is_object()) {
    const auto found = item.find(name);
    return found == item.end() ? nullptr : &*found;
  }
  const bool number = name.find_first_not_of("0123456789") == std::string::npos;
  if (!item.is_array() || !number) return nullptr;
  const auto place = static_cast<std::size_t>(std::stoul(name));
  return place < item.size() ? &item[place] : nullptr;
}

void for_lines(const std::string& path, const std::string& text, const ItemBody& body) {
  std::size_t number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    if (strip(line).empty()) continue;
    const Json item = Json::parse(line, nullptr, false);
    const std::string place = concat(path, ":", number);
    if (item.is_discarded())
      user_error(place, ": is not JSON; expected a list of items, an object of items, or one item per line");
    body(item, place);
  }
}

/// Returns whether `whole` is itself an item. This happens if a file with one item per line has only one line. An object is an item if it
/// has at least one of the layout's text members; otherwise its members are items.
bool is_one_item(const Json& whole, const JsonOptionLayout& layout) {
  const auto has = [&](const std::string& name) { return whole.contains(name); };
  return whole.is_object() && std::any_of(layout.texts.begin(), layout.texts.end(), has);
}

void for_items(const std::string& path, const JsonOptionLayout& layout, const ItemBody& body) {
  const std::string text = io::read_data_file(path);
  const Json whole = Json::parse(text, nullptr, false);
  if (whole.is_discarded()) return for_lines(path, text, body);
  if (is_one_item(whole, layout)) return body(whole, concat(path, ":1"));
  if (!whole.is_array() && !whole.is_object())
    user_error(path, ": expected a list or an object of items, got ", whole.type_name());
  if (whole.is_array())
    for (std::size_t i = 0; i < whole.size(); ++i) body(whole[i], concat(path, ": item ", i));
  else
    for (const auto& [name, item] : whole.items()) body(item, concat(path, ": ", printable(name, 60)));
}

/// Lists a layout's members: "filename, caption and negative_caption".
std::string expected_members(const JsonOptionLayout& layout) {
  std::vector<std::string> names = layout.pictures;
  names.insert(names.end(), layout.texts.begin(), layout.texts.end());
  return join_names(names);
}

std::string members_there(const Json& item) {
  if (item.is_array()) return concat("a list of ", item.size());
  if (!item.is_object()) return item.type_name();
  std::vector<std::string> names;
  for (const auto& [name, value] : item.items())
    if (names.size() < 20) names.push_back(name);
  return names.empty() ? "an empty object" : printable(join_names(names), 300);
}

/// Reads one item of a file.
class OptionReader {
 public:
  OptionReader(const Json& item, const std::string& place, const JsonOptionLayout& layout)
      : item_(item), place_(place), layout_(layout) {}

  /// Returns false for an item of VALSE if its annotators did not agree that the foil is wrong. Such items are skipped.
  bool validated() const {
    const Json* votes = member_of(item_, "mturk");
    return votes == nullptr || !votes->is_object() || votes->value("caption", 3) >= 2;
  }

  /// Returns the texts in the given members. The value of a member is one text or a list of texts.
  std::vector<std::string> texts_of(const std::vector<std::string>& members) const {
    std::vector<std::string> out;
    for (const std::string& name : members) {
      const Json* value = member_of(item_, name);
      if (value == nullptr) lacks(name);
      if (!value->is_array())
        out.push_back(text_of(*value, name));
      else
        for (const Json& each : *value) out.push_back(text_of(each, name));
    }
    return out;
  }

  /// Returns the part of the image that an item is about (ARO).
  std::optional<Box> part() const {
    std::array<std::int64_t, 4> box{};
    const std::array<const char*, 4> names = {"bbox_y", "bbox_x", "bbox_h", "bbox_w"};
    for (std::size_t i = 0; i < names.size(); ++i) {
      const Json* value = member_of(item_, names[i]);
      if (value == nullptr || !value->is_number()) return std::nullopt;
      box[i] = static_cast<std::int64_t>(value->get<double>());
    }
    return box;
  }

  std::string kind(const std::string& otherwise) const {
    for (const std::string& name : layout_.kind)
      if (member_of(item_, name) != nullptr) return json_text(item_, name);
    return layout_.kind.empty() ? otherwise : std::string();
  }

 private:
  [[noreturn]] void lacks(const std::string& name) const {
    user_error(place_, ": has no ", name, "; layout ", layout_.name, " has ", expected_members(layout_), ", this item has ",
               members_there(item_));
  }

  std::string text_of(const Json& value, const std::string& name) const {
    if (value.is_string()) return value.get<std::string>();
    if (value.is_number_integer()) return value.dump();  // an image may be given as a number
    user_error(place_, ": ", name, ": expected a text or a list of texts, got ", value.type_name());
  }

  const Json& item_;
  const std::string& place_;
  const JsonOptionLayout& layout_;
};

/// Adds one item for each caption. A caption whose words have no other order, such as a single word, is skipped.
void add_orders(const WordOrders& orders, const OptionItem& captions, const std::string& place, OptionBuilder& out) {
  for (std::size_t i = 0; i < captions.texts.size(); ++i) {
    OptionItem item = captions;
    item.texts = orders.of(captions.texts[i]);
    if (item.texts.size() < 2)
      out.skip("one_order");
    else
      out.add(std::move(item), place);
  }
}

/// Determines an item's set and pair from the name of its image. A set of What's Up shows two objects in four relations, which form two
/// opposite pairs: cup_left_of_chair.jpeg, cup_right_of_chair.jpeg, cup_on_chair.jpeg, cup_under_chair.jpeg (or in-front_of and behind).
void take_set(const std::string& picture, OptionItem& item) {
  const std::vector<std::string> words = split(std::filesystem::path(picture).stem().string(), '_');
  if (words.size() < 3) return;
  item.set = words.front() + " " + words.back();
  item.pair = item.set + (words[1] == "left" || words[1] == "right" ? " beside" : " otherwise");
}

}  // namespace

const std::vector<std::string>& option_layouts() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const JsonOptionLayout& layout : json_layouts()) out.push_back(layout.name);
    for (const char* other : {"svo_probes", "foil", "mmvp"}) out.push_back(other);
    return out;
  }();
  return names;
}

const JsonOptionLayout* json_option_layout(const std::string& name) {
  for (const JsonOptionLayout& layout : json_layouts())
    if (layout.name == name) return &layout;
  return nullptr;
}

void read_json_options(const std::string& path, const JsonOptionLayout& layout, OptionBuilder& out) {
  if (layout.paraphrases) out.expect_paraphrases();
  const std::optional<WordOrders> orders = layout.word_orders ? std::optional(WordOrders(out.lexicon())) : std::nullopt;
  const std::string file_kind = std::filesystem::path(path).stem().string();
  for_items(path, layout, [&](const Json& json, const std::string& place) {
    const OptionReader reader(json, place, layout);
    OptionItem item{{}, reader.texts_of(layout.texts), reader.kind(file_kind)};
    const std::vector<std::string> pictures = reader.texts_of(layout.pictures);
    if (!reader.validated()) return out.skip("not_validated");
    for (const std::string& picture : pictures) item.pictures.push_back(out.picture(picture, reader.part()));
    if (layout.sets_by_picture) take_set(pictures.front(), item);
    if (orders)
      add_orders(*orders, item, place, out);
    else
      out.add(std::move(item), place);
  });
}

}  // namespace tessera
