#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tessera/data/source.h>

namespace tessera {

/// A picture in a file of its own, with what a list tells of it. File names are relative to the list's folder.
struct ListedPicture {
  struct More {
    std::string summary;
    std::string object_tags;
    std::string region_file;
    std::string mask_file;
    std::vector<std::optional<FieldText>> texts;  // of each of the list's text_fields; null: this picture has none
    std::string bad_texts;                        // what is wrong with one of these; empty: nothing
    std::vector<HardNegative> negatives;
    std::vector<ObjectAnnotation> objects;
    std::string bad_boxes;
  };
  std::string name;
  std::vector<std::string> captions;
  std::int64_t label = -1;
  std::unique_ptr<More> more;  // few lists have these
};

struct PictureList {
  std::string described;  // "csv a.csv"
  std::string folder;     // of the pictures; empty: the current one
  std::vector<ListedPicture> pictures;
  std::vector<std::string> class_names;
  std::int64_t background_class = -1;
  std::map<std::string, std::string> columns = {};  // by field, where the list looks for it, for messages
  std::string region_tensor;  // in region files that hold several; empty: the first
  std::vector<std::uint8_t> mask_classes{};  // the class that each of 256 values of a mask means; empty: itself
  std::vector<std::string> text_fields{};  // names
  std::vector<std::string> tables{};  // files that the list was read from
};

/// Pictures that a list names. One that is missing is a SampleError `no_image`.
class ListedPictures : public IndexedSource {
 public:
  /// Throws UserError when the list is empty, or none of its first pictures is there.
  explicit ListedPictures(PictureList list);

  std::int64_t size() const override { return static_cast<std::int64_t>(list_.pictures.size()); }
  Sample get(std::int64_t index) const override;
  std::vector<std::string> class_names() const override { return list_.class_names; }
  std::int64_t background_class() const override { return list_.background_class; }
  std::vector<std::string> captions(std::int64_t index) const override {
    return with_texts(list_.pictures.at(static_cast<std::size_t>(index))).captions;
  }
  std::int64_t captionless() const override;
  std::string name_of(std::int64_t index) const override {
    return path_of(list_.pictures.at(static_cast<std::size_t>(index)).name);
  }
  std::string describe_fields(const std::vector<std::string>& needed) const override;
  std::string describe() const override;
  std::int64_t data_file_count() const override { return std::ssize(list_.tables) + size(); }
  DataFile data_file(std::int64_t index) const override;

 private:
  std::string path_of(const std::string& name) const;
  void check_first() const;
  Sample with_texts(const ListedPicture& picture) const;
  Sample read(const ListedPicture& picture) const;
  std::vector<std::uint8_t> read_mask(const std::string& file, const std::string& picture) const;

  PictureList list_;
};

}  // namespace tessera
