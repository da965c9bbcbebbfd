#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/data/sources/one_per_image.h"
#include <tessera/base/error.h>
#include <tessera/data/source.h>

namespace tessera {

/// An image file, and what a list of images says about it. File names are relative to PictureList::folder.
struct ListedPicture {
  struct More {
    std::string summary;
    std::string object_tags;
    std::string region_file;
    std::string mask_file;
    std::vector<std::optional<FieldText>>
        texts;  // one for each of the list's text_fields; nullopt: this image lacks the field
    std::vector<HardNegative> negatives;
    std::vector<ObjectAnnotation> objects;
    std::string bad_boxes;
    std::optional<SampleError> bad;  // why the sample cannot be used
  };
  /// Returns `more`, which it makes if it is null.
  More& detail() { return *(more ? more : more = std::make_unique<More>()); }
  bool is_bad() const { return more && more->bad; }

  std::string name;
  std::vector<std::string> captions;
  std::int64_t label = -1;
  std::unique_ptr<More> more;  // null if the list has only names, captions and labels, as most do
};

class JsonItem;

/// Returns a bad sample `bad_item` for an item of a JSON list that lacks a member.
ListedPicture bad_item(const JsonItem& item, const UserError& error);

struct PictureList {
  std::string described;  // "csv a.csv"
  std::string folder;     // folder of the images; empty: the current folder
  std::vector<ListedPicture> pictures;
  std::vector<std::string> class_names;
  std::int64_t background_class = -1;
  std::map<std::string, std::string> columns = {};  // field -> column or member in which the field is looked for, as a text for messages
  std::string region_tensor;  // name of the tensor to read from region files; empty: the first tensor is read
  std::vector<std::uint8_t> mask_classes{};  // class for each of the 256 mask values; empty: each value is itself the class
  std::vector<std::string> text_fields{};  // names of the text fields
  std::vector<std::string> tables{};  // files that the list was read from
};

/// Images named in a list. A missing image is a SampleError `no_image`.
class ListedPictures : public IndexedSource, public ImageIds {
 public:
  /// Throws UserError if the list is empty or all its samples are bad, or if none of its first few images exists (the constructor looks
  /// only for these).
  explicit ListedPictures(PictureList list);

  std::int64_t size() const override { return static_cast<std::int64_t>(list_.pictures.size()); }
  Sample get(std::int64_t index) const override;
  std::vector<std::string> class_names() const override { return list_.class_names; }
  std::int64_t background_class() const override { return list_.background_class; }
  std::vector<std::string> captions(std::int64_t index) const override {
    return with_texts(list_.pictures.at(static_cast<std::size_t>(index))).captions;
  }
  bool lacks_caption(std::int64_t index) const override;
  std::vector<std::uint64_t> image_ids() const override;
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
  void tell_line_breaks() const;
  Sample with_texts(const ListedPicture& picture) const;
  Sample read(const ListedPicture& picture) const;
  std::vector<std::uint8_t> read_mask(const std::string& file, const std::string& picture) const;

  PictureList list_;
};

}  // namespace tessera
