#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/data/formats/json_values.h"
#include <tessera/data/source.h>

namespace tessera {

/// An image file, and what a list of images says about it. File names are relative to ImageList::folder.
struct ListedImage {
  struct More {
    Sample known;  // everything except the key, the image, the captions, the label and what the files below hold
    std::string mask_file, depth_file, region_file;
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

/// Returns a bad sample `bad_item` for an item of a JSON list that lacks a member.
ListedImage bad_item(const JsonItem& item, const UserError& error);

/// Finds the image file that a name in a list stands for, and returns the file's path relative to `folder`. Tries the name as written, then
/// the name without its folders. If the name has no extension, appends each of the usual extensions; if it is also a number, tries the
/// number with leading zeros too, as COCO writes it. Returns the name itself if no such file exists, or if the folder is remote.
std::string find_image(const std::string& folder, const std::string& name);

struct ImageList {
  std::string described;  // "csv a.csv"
  std::string folder;     // folder of the images, which may be remote; empty: the current folder
  std::vector<ListedImage> images;
  std::vector<std::string> class_names;
  std::int64_t background_class = -1;
  std::string region_tensor;  // name of the tensor to read from region files; empty: the first tensor is read
  double depth_units = 1000;
  std::vector<std::uint8_t> mask_classes{};  // class for each of the 256 mask values; empty: each value is itself the class
  std::vector<std::string> tables{};         // files that the list was read from
};

/// Images named in a list, local or remote. A missing image is a SampleError `no_image`.
class ListedImages : public IndexedSource {
 public:
  /// Throws UserError if the list is empty or all its samples are bad, or if none of its first few images exists (the constructor looks
  /// only for these).
  explicit ListedImages(ImageList list);

  std::int64_t size() const override { return std::ssize(list_.images); }
  Sample get(std::int64_t index) const override;
  std::vector<std::string> class_names() const override { return list_.class_names; }
  std::int64_t background_class() const override { return list_.background_class; }
  double depth_units() const override { return list_.depth_units; }
  std::vector<std::string> captions(std::int64_t index) const override;
  bool lacks_caption(std::int64_t index) const override;
  std::vector<std::uint64_t> image_ids() const override;
  std::string name_of(std::int64_t index) const override { return path_of(listed(index).name); }
  std::string describe() const override;
  std::int64_t read_ahead() const override { return read_ahead_; }
  void will_read(std::int64_t index) const override;
  std::int64_t data_file_count() const override { return std::ssize(list_.tables) + size(); }
  DataFile data_file(std::int64_t index) const override;

 protected:
  const ListedImage& listed(std::int64_t index) const { return list_.images.at(static_cast<std::size_t>(index)); }

 private:
  std::string path_of(const std::string& name) const;
  void check_first() const;
  Sample read(const ListedImage& image) const;

  ImageList list_;
  std::int64_t read_ahead_ = 0;
};

}  // namespace tessera
