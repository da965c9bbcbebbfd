#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "src/base/printable.h"
#include "src/data/formats/captions.h"
#include "src/data/formats/data_files.h"
#include "src/data/formats/table.h"
#include "src/data/sources/benchmarks.h"
#include "src/data/sources/listed_images.h"
#include "src/io/stand_in.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = "[/EN#";

[[noreturn]] void refuse_entity(const std::string& text) {
  throw SampleError("bad_annotation", text);
}

// Returns the texts between <name> and </name>, in order.
std::vector<std::string_view> xml_elements(std::string_view xml, const std::string& name) {
  const std::string open = "<" + name + ">", close = "</" + name + ">";
  std::vector<std::string_view> out;
  for (std::size_t at = xml.find(open); at != std::string_view::npos; at = xml.find(open, at)) {
    at += open.size();
    const std::size_t end = xml.find(close, at);
    if (end == std::string_view::npos) refuse_entity("its Annotations file is cut off: " + open + " is not closed");
    out.push_back(strip(xml.substr(at, end - at)));
    at = end + close.size();
  }
  return out;
}

std::int64_t xml_pixel(std::string_view box, const char* name) {
  const std::vector<std::string_view> found = xml_elements(box, name);
  double value = 0;
  const bool good = found.size() == 1 && std::from_chars(found[0].data(), found[0].data() + found[0].size(), value).ec == std::errc();
  if (!good || !(std::abs(value) < 1e6)) refuse_entity(concat("a box of its Annotations file has no number ", name));
  return std::llround(value);
}

Box box_around(const Box& a, const Box& b) {
  const std::int64_t top = std::min(a[0], b[0]), left = std::min(a[1], b[1]);
  return {top, left, std::max(a[0] + a[2], b[0] + b[2]) - top, std::max(a[1] + a[3], b[1] + b[3]) - left};
}

// Returns a map from each entity that has boxes in an Annotations file to the box [top, left, height, width] that encloses these boxes.
std::map<std::string, Box> parse_entity_boxes(std::string_view xml) {
  if (xml_elements(xml, "annotation").empty()) refuse_entity("its Annotations file holds no <annotation>");
  std::map<std::string, Box> boxes;
  for (const std::string_view object : xml_elements(xml, "object")) {
    std::optional<Box> whole;
    for (const std::string_view box : xml_elements(object, "bndbox")) {
      const std::int64_t left = xml_pixel(box, "xmin"), top = xml_pixel(box, "ymin");
      const Box read = {top, left, xml_pixel(box, "ymax") - top, xml_pixel(box, "xmax") - left};
      if (read[2] < 0 || read[3] < 0) refuse_entity("a box of its Annotations file ends before it begins");
      whole = whole ? box_around(*whole, read) : read;
    }
    if (!whole) continue;
    for (const std::string_view name : xml_elements(object, "name")) {
      const auto [known, is_new] = boxes.emplace(name, *whole);
      if (!is_new) known->second = box_around(known->second, *whole);
    }
  }
  return boxes;
}

// Adds a line such as "[/EN#1/people A man] sits ." to the captions, without its brackets, and the phrases in brackets to the objects. The
// entity "0" is not in the image.
void add_entity_sentence(std::string_view line, const std::map<std::string, Box>& boxes, Sample& sample) {
  std::string text;
  while (!line.empty()) {
    const std::size_t open = line.find(kMark);
    text += line.substr(0, open);
    if (open == std::string_view::npos) break;
    line.remove_prefix(open + kMark.size());
    const std::size_t close = line.find(']'), slash = line.find('/'), space = line.find(' ');
    if (close == std::string_view::npos || slash > space || space > close)
      refuse_entity("a phrase of its Sentences file is malformed: [/EN#" + printable(line, 40));
    ObjectAnnotation object;
    object.phrase = line.substr(space + 1, close - space - 1);
    object.span = {std::ssize(text), std::ssize(text) + std::ssize(object.phrase)};
    object.caption = std::ssize(sample.captions);
    text += object.phrase;
    const std::string entity(line.substr(0, slash));
    if (const auto box = boxes.find(entity); box != boxes.end()) object.box = box->second;
    if (entity != "0") sample.objects.push_back(std::move(object));
    line.remove_prefix(close + 1);
  }
  sample.captions.push_back(std::move(text));
}

void add_entity_sentences(std::string_view sentences, const std::map<std::string, Box>& boxes, Sample& sample) {
  for_each_line(sentences, [&](const std::string& line, std::int64_t) { add_entity_sentence(strip(line), boxes, sample); });
}

/// Reads the images and captions of Flickr30k's own files.
class Flickr30kReader {
 public:
  explicit Flickr30kReader(const Flickr30kSettings& settings) : settings_(settings) {
    if (settings.captions.empty() && settings.entities.empty())
      user_error("flickr30k: neither captions nor entities is set; expected results_20130124.token, or the folder of Flickr30k Entities");
  }

  ImageList read() {
    for (const config::FilePath* path : {&settings_.captions, &settings_.entities, &settings_.split})
      if (!path->empty()) config::require(*path);
    read_split();
    if (settings_.captions.empty())
      list_sentences();
    else if (settings_.captions.name.ends_with(".csv"))
      read_csv();
    else
      read_token();
    check_split();
    list_.described = concat("flickr30k ", settings_.captions.empty() ? settings_.entities : settings_.captions,
                             settings_.split.empty() ? "" : concat(" (", settings_.split, ")"));
    for (const std::string& table : {settings_.captions, settings_.split})
      if (!table.empty()) list_.tables.push_back(table);
    list_.folder = settings_.images;
    return std::move(list_);
  }

 private:
  void read_split() {
    if (settings_.split.empty()) return;
    for_each_line(io::read_data_file(settings_.split),
                  [&](const std::string& line, std::int64_t) { wanted_.insert(fs::path(strip(line)).stem().string()); });
    if (wanted_.empty()) user_error(settings_.split, ": is empty; expected numbers of images, one per line");
  }

  void check_split() const {
    if (numbers_.empty() && !wanted_.empty())
      user_error(settings_.split, ": names none of the images; expected numbers such as 1000092795, got ", *wanted_.begin());
    if (numbers_.size() < wanted_.size())
      log::warning(settings_.split, ": ", wanted_.size() - numbers_.size(), " of its ", wanted_.size(), " images have no captions");
  }

  ListedImage* image_of(const std::string& name) {
    if (!wanted_.empty() && !wanted_.contains(fs::path(name).stem().string())) return nullptr;
    const auto [number, is_new] = numbers_.emplace(name, list_.images.size());
    if (is_new) list_.images.emplace_back().name = name;
    return &list_.images[number->second];
  }

  void read_token() {
    std::int64_t wrong = 0;
    std::string first_wrong;
    for_each_line(io::read_data_file(settings_.captions), [&](const std::string& line, std::int64_t number) {
      const std::size_t tab = line.find('\t'), mark = line.rfind('#', tab);
      if (tab == std::string::npos || mark == std::string::npos || mark == 0) {
        if (wrong++ == 0) first_wrong = concat(":", number, ": expected IMAGE#NUMBER<tab>CAPTION, got \"", printable(line, 60), "\"");
      } else if (ListedImage* image = image_of(line.substr(0, mark))) {
        add_caption(std::string_view(line).substr(tab + 1), image->captions);
      }
    });
    if (wrong > 0 && list_.images.empty()) user_error(settings_.captions, first_wrong);
    if (wrong > 0) log::warning(settings_.captions, first_wrong, "; ", wrong, " such lines are left out");
  }

  void read_csv() {
    Table table(settings_.captions, '|');
    const std::size_t name = table.column("image_name", "the image"), text = table.column("comment", "its caption");
    std::int64_t without = 0, first = 0;
    for (std::vector<std::string> row; table.next(row);) {
      ListedImage* image = image_of(std::string(strip(row[name])));
      if (image == nullptr) continue;
      add_caption(row[text], image->captions);
      if (strip(row[text]).empty() && without++ == 0) first = table.line();
    }
    if (without > 0) log::warning(settings_.captions, ": ", without, " rows have no caption (the first: line ", first, ")");
  }

  void list_sentences() {
    const fs::path folder = fs::path(settings_.entities.name) / "Sentences";
    std::vector<std::string> names;
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(folder, failed))
      if (entry.path().extension() == ".txt") names.push_back(entry.path().stem().string() + ".jpg");
    if (failed) user_error(folder.string(), ": cannot be listed: ", failed.message());
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) image_of(name);
  }

  const Flickr30kSettings& settings_;
  std::set<std::string> wanted_;  // names, without extension, of the images to read; empty: all
  std::unordered_map<std::string, std::size_t> numbers_;
  ImageList list_;
};

class Flickr30k : public ListedImages {
 public:
  Flickr30k(ImageList list, std::string entities) : ListedImages(std::move(list)), entities_(std::move(entities)) {
    std::error_code ignored;
    for (const char* folder : {"Sentences", "Annotations"})
      if (!entities_.empty() && !fs::is_directory(fs::path(entities_) / folder, ignored))
        user_error((fs::path(entities_) / folder).string(), ": no such folder; it is part of Flickr30k Entities");
  }

  Sample get(std::int64_t index) const override {
    Sample sample = ListedImages::get(index);
    if (!entities_.empty())
      read_at("sample " + sample.key, sample.key, [&] {
        set_entities(read_of(sample.key, "Sentences", ".txt"), read_of(sample.key, "Annotations", ".xml"), sample);
      });
    return sample;
  }

  std::vector<std::string> captions(std::int64_t index) const override {
    if (entities_.empty()) return ListedImages::captions(index);
    Sample sample;
    const std::string key = fs::path(listed(index).name).filename().string();
    read_at("sample " + key, key, [&] { add_entity_sentences(read_of(key, "Sentences", ".txt"), {}, sample); });
    return std::move(sample.captions);
  }

  bool lacks_caption(std::int64_t index) const override { return entities_.empty() && ListedImages::lacks_caption(index); }

 private:
  std::string read_of(const std::string& key, const char* folder, const char* extension) const {
    return read_sample_file((fs::path(entities_) / folder / fs::path(key).stem().concat(extension)).string(), "bad_annotation");
  }

  std::string entities_;
};

}  // namespace

std::shared_ptr<IndexedSource> make_coco_captions(const CocoCaptionsSettings& settings) {
  const config::FilePath& path = settings.annotations;
  if (path.empty()) user_error("coco_captions: annotations is not set; expected a file such as captions_train2017.json");
  config::require(path);
  ImageList list{concat("coco_captions ", path), settings.images};
  std::unordered_map<std::int64_t, std::size_t> numbers;       // indices of images, by id
  std::vector<std::pair<std::int64_t, std::string>> captions;  // ids of images, and texts
  std::size_t bad_captions = 0, strangers = 0;
  std::string first_bad;
  const auto read_image = [&](const JsonItem& item) {
    std::optional<std::int64_t> number;
    ListedImage image;
    try {
      image.name = item.text("file_name");
      number = item.number("id");
    } catch (const UserError& error) {
      image = bad_item(item, error);
    }
    if (number && !numbers.emplace(*number, list.images.size()).second)
      user_error(item.place(), ": id ", *number, " is already used by an earlier item");
    list.images.push_back(std::move(image));
  };
  const auto read_caption = [&](const JsonItem& item) {
    try {
      captions.emplace_back(item.number("image_id"), item.text_or_empty("caption"));
    } catch (const UserError& error) {
      if (bad_captions++ == 0) first_bad = error.what();
    }
  };
  for_each_item(path, {{"images", read_image}, {"annotations", read_caption}});
  if (captions.empty() && bad_captions > 0) user_error(first_bad);
  if (bad_captions > 0)
    log::warning(path, ": ", bad_captions, " of ", captions.size() + bad_captions, " captions are left out (the first: ", first_bad, ")");
  for (const auto& [image, text] : captions) {
    const auto found = numbers.find(image);
    if (found == numbers.end())
      ++strangers;
    else
      add_caption(text, list.images[found->second].captions);
  }
  if (strangers > 0) log::warning(path, ": ", strangers, " of ", captions.size(), " captions belong to images that `images` does not list");
  list.tables = {path};
  return std::make_shared<ListedImages>(std::move(list));
}

std::shared_ptr<IndexedSource> make_karpathy(const KarpathySettings& settings) {
  const config::FilePath& path = settings.annotations;
  if (path.empty()) user_error("karpathy: annotations is not set; expected a file such as dataset_coco.json");
  config::require(path);
  ImageList list{concat("karpathy ", path, " (", settings.split, ")"), settings.images};
  std::map<std::string, std::int64_t> found;
  for (const std::string& name : split(settings.split, '+')) found[name] = 0;
  const std::map<std::string, std::int64_t> wanted = found;
  std::optional<UserError> first_problem;
  for_each_item(path, {{"images", [&](const JsonItem& item) {
                          try {
                            const std::string split = item.text("split");
                            ++found[split];
                            if (!wanted.contains(split)) return;
                            ListedImage image;
                            image.name = (std::filesystem::path(item.text_or_empty("filepath")) / item.text("filename")).generic_string();
                            const nlohmann::json& sentences = item.list("sentences");
                            for (std::size_t i = 0; i < sentences.size(); ++i)
                              add_caption(JsonItem(sentences[i], concat(item.place(), ".sentences[", i, "]")).text("raw"),
                                          image.captions);
                            list.images.push_back(std::move(image));
                          } catch (const UserError& error) {
                            if (!first_problem) first_problem = error;
                            list.images.push_back(bad_item(item, error));
                          }
                        }}});
  for (const auto& [name, none] : wanted) {
    if (found.at(name) > 0) continue;
    if (found.size() == wanted.size() && first_problem) throw *first_problem;  // no item says its split
    std::vector<std::string> there;
    for (const auto& [other, count] : found)
      if (count > 0) there.push_back(concat(other, " (", count, " images)"));
    user_error(path, ": has no split \"", name, "\"; there are: ", there.empty() ? "none" : printable(join_names(there), 500));
  }
  list.tables = {path};
  return std::make_shared<ListedImages>(std::move(list));
}

void set_entities(std::string_view sentences, std::string_view xml, Sample& sample) {
  sample.captions.clear();
  sample.objects.clear();
  add_entity_sentences(sentences, parse_entity_boxes(xml), sample);
}

std::shared_ptr<IndexedSource> make_flickr30k(const Flickr30kSettings& settings) {
  return std::make_shared<Flickr30k>(Flickr30kReader(settings).read(), settings.entities);
}

}  // namespace tessera
