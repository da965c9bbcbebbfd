#include "src/data/sources/json_lines.h"

#include <filesystem>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "src/base/printable.h"
#include "src/data/formats/annotations.h"
#include "src/data/formats/captions.h"
#include "src/data/formats/python_json.h"
#include "src/data/formats/sentences.h"
#include "src/data/formats/text_fields.h"
#include "src/data/sources/field_source.h"
#include "src/data/sources/find_picture.h"
#include "src/data/sources/listed_pictures.h"
#include "src/io/stand_in.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

class JsonLinesReader {
 public:
  explicit JsonLinesReader(const JsonLinesSettings& settings) : settings_(settings) {}

  PictureList read() {
    if (settings_.path.items.empty())
      user_error("json_lines: path is not set; expected a file with one JSON object per line");
    if (!settings_.images.empty()) config::require(settings_.images);
    list_.tables = expand_paths(settings_.path, ".jsonl");
    for (const std::string& path : list_.tables) read_file(path);
    for (const std::string& key : settings_.caption_key)
      if (const auto lacking = captionless_.find(key); lacking != captionless_.end() && !found_.contains(key))
        throw UserError(lacking->second);
    if (list_.pictures.empty())
      user_error(list_.tables[0], settings_.split.empty() ? ": holds no lines"
                                                          : concat(": has no line with split \"", settings_.split, "\""));
    list_.described =
        concat("json_lines ", list_.tables[0], settings_.split.empty() ? "" : concat(" (", settings_.split, ")"));
    list_.folder = folder_of(list_.tables[0]);
    list_.text_fields = settings_.text_fields;
    const std::string regions = concat("the member ", settings_.regions_key, " (regions_key)");
    list_.columns = {{"negatives", concat("negatives are looked for in the member ", settings_.negatives_key,
                                          " (negatives_key)")},
                     {"phrases", concat("phrases are looked for in ", regions)},
                     {"phrase_negatives", concat("phrase_negatives are looked for in ", regions)}};
    if (!settings_.text_fields.empty())
      list_.columns["captions"] =
          concat("captions are looked for in the members ", join_names(settings_.text_fields), " (text_fields)");
    return std::move(list_);
  }

  /// Calls take(item, place) for those lines of a file that belong to the settings' split, in order. An item that is not an object comes
  /// from a line that cannot be read.
  template <class Take>
  static void for_each_line(const JsonLinesSettings& settings, const std::string& path, const Take& take) {
    std::size_t number = 0;
    for (const std::string& line : split(io::read_data_file(path), '\n')) {
      ++number;
      if (strip(line).empty()) continue;
      const nlohmann::json item = parse_python_json(line);
      const std::string place = concat(path, ":", number);
      if (settings.split.empty() || !item.is_object() || item.value("split", nlohmann::json()) == settings.split)
        take(item, place);
    }
  }

 private:
  // Without `images`, image names are relative to the folder of their list.
  std::string folder_of(const std::string& path) const {
    return settings_.images.empty() ? std::filesystem::path(path).parent_path().string() : settings_.images.name;
  }

  void read_file(const std::string& path) {
    const std::string folder = folder_of(path);
    // The list has one folder, so images in other folders are named by their whole path.
    const bool own = folder != folder_of(list_.tables[0]);
    const auto found = [&](const std::string& name) {
      const std::string file = find_picture(folder, name);
      return own ? (std::filesystem::absolute(folder) / file).generic_string() : file;
    };
    for_each_line(settings_, path, [&](const nlohmann::json& item, const std::string& place) {
      ListedPicture picture;
      const auto image = item.find(settings_.image_key);
      if (!item.is_object())
        picture.detail().bad.emplace("bad_row", place + ": expected one JSON object per line");
      else if (image == item.end())
        picture.detail().bad.emplace("no_image", lacking(item, settings_.image_key, "image_key", place));
      else if (!image->is_string())
        picture.detail().bad.emplace("no_image", concat(place, ": ", settings_.image_key,
                                                        " (image_key): expected a text, got ", image->type_name()));
      picture.name = picture.is_bad() ? place : found(image->get<std::string>());
      if (!picture.is_bad()) read_item(item, place, picture);
      list_.pictures.push_back(std::move(picture));
    });
  }

  void read_item(const nlohmann::json& item, const std::string& place, ListedPicture& picture) {
    for (const std::string& key : settings_.caption_key) {
      const auto captions = item.find(key);
      if (captions == item.end()) {
        captionless_.emplace(key, lacking(item, key, "caption_key", place));
        continue;
      }
      found_.insert(key);
      add_captions(*captions, picture);
    }
    add_texts(item, picture);
    add_annotations(item, picture);
  }

  void add_captions(const nlohmann::json& value, ListedPicture& picture) const {
    if (value.is_array())
      for (const nlohmann::json& each : value) add_captions_of_text(each, picture);
    else
      add_captions_of_text(value, picture);
  }

  void add_captions_of_text(const nlohmann::json& value, ListedPicture& picture) const {
    if (!value.is_string()) return;
    const auto& text = value.get_ref<const std::string&>();
    if (!settings_.sentences) return add_caption(text, picture.captions);
    for (const std::string& sentence : caption_sentences(text)) add_caption(sentence, picture.captions);
  }

  // A text field of the wrong type makes only this sample bad, not the whole list.
  void add_texts(const nlohmann::json& item, ListedPicture& picture) const {
    if (settings_.text_fields.empty()) return;
    try {
      for (const std::string& name : settings_.text_fields)
        picture.detail().texts.push_back(field_text(item, name, picture.name));
    } catch (const SampleError& error) {
      picture.detail().bad = error;
    }
  }

  void add_annotations(const nlohmann::json& item, ListedPicture& picture) const {
    const auto negatives = item.find(settings_.negatives_key), regions = item.find(settings_.regions_key);
    if (negatives == item.end() && regions == item.end()) return;
    if (negatives != item.end()) read_negatives(*negatives, picture.detail().negatives);
    if (regions != item.end()) picture.detail().bad_boxes = read_regions(*regions, picture.detail().objects);
  }

  static std::string lacking(const nlohmann::json& item, const std::string& key, const char* setting,
                             const std::string& place) {
    std::vector<std::string> names;
    for (const auto& [name, value] : item.items())
      if (names.size() < 20) names.push_back(name);
    return concat(place, ": has no ", key, " (", setting,
                  "); its members are: ", names.empty() ? "none" : printable(join_names(names), 500));
  }

  const JsonLinesSettings& settings_;
  PictureList list_;
  std::set<std::string> found_;  // the members of caption_key that some line has
  std::map<std::string, std::string>
      captionless_;  // for each member of caption_key, the message about the first line that lacks it
};

/// Images listed in JSON lines. judge() reads the lines again, because a filter may use any member.
class JsonLines : public ListedPictures, public FieldSource {
 public:
  explicit JsonLines(const JsonLinesSettings& settings) : ListedPictures(JsonLinesReader(settings).read()), settings_(settings) {}

  std::vector<FilterVerdict> judge(const RowFilter& filter) const override {
    std::vector<FilterVerdict> out;
    for (const std::string& path : expand_paths(settings_.path, ".jsonl"))
      JsonLinesReader::for_each_line(settings_, path, [&](const nlohmann::json& item, const std::string&) {
        out.push_back(item.is_object() ? filter.judge(item) : FilterVerdict{FilterVerdict::unreadable});
      });
    return out;
  }

 private:
  const JsonLinesSettings settings_;
};

}  // namespace

std::shared_ptr<IndexedSource> make_json_lines(const JsonLinesSettings& settings) {
  return std::make_shared<JsonLines>(settings);
}

}  // namespace tessera
