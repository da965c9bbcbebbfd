#include <algorithm>
#include <filesystem>
#include <set>
#include <unordered_map>

#include "src/base/printable.h"
#include "src/data/formats/captions.h"
#include "src/data/formats/sample_file.h"
#include "src/data/formats/table.h"
#include "src/data/sources/entities.h"
#include "src/data/sources/flickr30k.h"
#include "src/data/sources/listed_pictures.h"
#include "src/io/stand_in.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// Reads the images and captions of Flickr30k's own files.
class Flickr30kReader {
 public:
  explicit Flickr30kReader(const Flickr30kSettings& settings) : settings_(settings) {
    if (settings.captions.empty() && settings.entities.empty())
      user_error(
          "flickr30k: neither captions nor entities is set; expected results_20130124.token, or the folder of "
          "Flickr30k Entities");
  }

  PictureList read() {
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
    for (const std::string& line : split(io::read_data_file(settings_.split), '\n'))
      if (!strip(line).empty()) wanted_.insert(fs::path(strip(line)).stem().string());
    if (wanted_.empty()) user_error(settings_.split, ": is empty; expected numbers of images, one per line");
  }

  void check_split() const {
    if (numbers_.empty() && !wanted_.empty())
      user_error(settings_.split, ": names none of the images; expected numbers such as 1000092795, got ",
                 *wanted_.begin());
    if (numbers_.size() < wanted_.size())
      log::warning(settings_.split, ": ", wanted_.size() - numbers_.size(), " of its ", wanted_.size(),
                   " images have no captions");
  }

  ListedPicture* picture_of(const std::string& name) {
    if (!wanted_.empty() && !wanted_.contains(fs::path(name).stem().string())) return nullptr;
    const auto [number, is_new] = numbers_.emplace(name, list_.pictures.size());
    if (is_new) list_.pictures.emplace_back().name = name;
    return &list_.pictures[number->second];
  }

  void read_token() {
    std::int64_t number = 0, wrong = 0;
    std::string first_wrong;
    for (const std::string& line : split(io::read_data_file(settings_.captions), '\n')) {
      ++number;
      if (strip(line).empty()) continue;
      const std::size_t tab = line.find('\t'), mark = line.rfind('#', tab);
      if (tab == std::string::npos || mark == std::string::npos || mark == 0) {
        if (wrong++ == 0)
          first_wrong = concat(":", number, ": expected IMAGE#NUMBER<tab>CAPTION, got \"", printable(line, 60), "\"");
        continue;
      }
      if (ListedPicture* picture = picture_of(line.substr(0, mark)))
        add_caption(std::string_view(line).substr(tab + 1), picture->captions);
    }
    if (wrong > 0 && list_.pictures.empty()) user_error(settings_.captions, first_wrong);
    if (wrong > 0) log::warning(settings_.captions, first_wrong, "; ", wrong, " such lines are left out");
  }

  void read_csv() {
    Table table(settings_.captions, '|');
    const std::size_t name = table.column("image_name", "the image"), text = table.column("comment", "its caption");
    std::int64_t without = 0, first = 0;
    for (std::vector<std::string> row; table.next(row);) {
      ListedPicture* picture = picture_of(std::string(strip(row[name])));
      if (picture == nullptr) continue;
      if (strip(row[text]).empty()) {
        if (without++ == 0) first = table.line();
      } else {
        add_caption(row[text], picture->captions);
      }
    }
    if (without > 0)
      log::warning(settings_.captions, ": ", without, " rows have no caption (the first: line ", first, ")");
  }

  void list_sentences() {
    const fs::path folder = fs::path(settings_.entities.name) / "Sentences";
    std::vector<std::string> names;
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(folder, failed))
      if (entry.path().extension() == ".txt") names.push_back(entry.path().stem().string() + ".jpg");
    if (failed) user_error(folder.string(), ": cannot be listed: ", failed.message());
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) picture_of(name);
  }

  const Flickr30kSettings& settings_;
  std::set<std::string> wanted_;  // names, without extension, of the images to read; empty: all
  std::unordered_map<std::string, std::size_t> numbers_;
  PictureList list_;
};

class Flickr30k : public ListedPictures {
 public:
  Flickr30k(PictureList list, std::string entities) : ListedPictures(std::move(list)), entities_(std::move(entities)) {
    std::error_code ignored;
    for (const char* folder : {"Sentences", "Annotations"})
      if (!entities_.empty() && !fs::is_directory(fs::path(entities_) / folder, ignored))
        user_error((fs::path(entities_) / folder).string(), ": no such folder; it is part of Flickr30k Entities");
  }

  Sample get(std::int64_t index) const override {
    Sample sample = ListedPictures::get(index);
    if (entities_.empty()) return sample;
    read_named(sample.key, [&] {
      const std::string sentences = read_of(sample.key, "Sentences", ".txt");
      set_entities(sentences, read_of(sample.key, "Annotations", ".xml"), sample);
    });
    return sample;
  }

  std::vector<std::string> captions(std::int64_t index) const override {
    if (entities_.empty()) return ListedPictures::captions(index);
    const std::string key = fs::path(name_of(index)).filename().string();
    std::vector<std::string> out;
    read_named(key, [&] {
      for (EntitySentence& sentence : parse_entity_sentences(read_of(key, "Sentences", ".txt")))
        out.push_back(std::move(sentence.text));
    });
    return out;
  }

  bool lacks_caption(std::int64_t index) const override {
    return entities_.empty() && ListedPictures::lacks_caption(index);
  }

 private:
  /// Calls `read`, and adds the sample's key to the SampleErrors that `read` throws.
  template <class Read>
  static void read_named(const std::string& key, const Read& read) {
    try {
      read();
    } catch (const SampleError& error) {
      throw SampleError(error.reason(), concat("sample ", key, ": ", error.what()), key);
    }
  }

  std::string read_of(const std::string& key, const char* folder, const char* extension) const {
    return read_sample_file((fs::path(entities_) / folder / fs::path(key).stem().concat(extension)).string(),
                            "bad_annotation");
  }

  std::string entities_;
};

}  // namespace

std::shared_ptr<IndexedSource> make_flickr30k(const Flickr30kSettings& settings) {
  return std::make_shared<Flickr30k>(Flickr30kReader(settings).read(), settings.entities);
}

}  // namespace tessera
