#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tessera/config/file_path.h>
#include <tessera/data/source.h>

namespace tessera {

/// Pictures and their masks in two folders, under the same names: PATH/PICTURES/NAME.jpg, PATH/MASKS/NAME.png.
struct SegmentationFolderSettings {
  config::FilePath path;
  std::string pictures;
  std::string masks;
  std::string list;
  std::string picture_suffix = ".jpg";
  std::string mask_suffix = ".png";
  std::optional<config::FilePath> classes;
  std::vector<std::int64_t> values;
  bool reduce_zero_label = false;
  std::int64_t ignored_value = 255;
  std::int64_t background_class = -1;
};

template <class Visitor>
void fields(Visitor& v, SegmentationFolderSettings& s) {
  v("path", s.path, "the data set's folder");
  v("pictures", s.pictures, "folder of the pictures within it: JPEGImages, leftImg8bit/val, ...");
  v("masks", s.masks, "folder of the masks within it, PNG files of class values (grey, or palette indices)");
  v("list", s.list,
    "text file within it that names the samples, one a line, without suffix; empty: all pictures of the folder and the "
    "folders in it");
  v("picture_suffix", s.picture_suffix, "what follows a sample's name in its picture's: .jpg, _leftImg8bit.png, ...");
  v("mask_suffix", s.mask_suffix, "what follows it in its mask's: .png, _gtFine_labelIds.png, ...");
  v("classes", s.classes,
    "file of class names, one class a line, in the order of their values; several names of a class are separated by "
    "commas; null: the task names them");
  v("values", s.values,
    "the value in masks that stands for each class, in their order; pixels of other values are ignored; empty: 0, 1, "
    "2, "
    "...",
    config::in_range(0, 255));
  v("reduce_zero_label", s.reduce_zero_label,
    "pixels of value 0 are ignored, and value 1 is the first class (mmsegmentation's setting of this name)");
  v("ignored_value", s.ignored_value, "value of pixels that count nowhere", config::in_range(0, 255));
  v("background_class", s.background_class, "index of the background among the classes, -1: none",
    config::at_least(-1));
}

std::optional<config::Problem> validate(const SegmentationFolderSettings& settings);

/// Samples in the order of the list, or of their names; a key is a picture's name within PATH. Throws UserError naming
/// what is missing or empty, and where `values` and class names do not agree.
std::shared_ptr<IndexedSource> make_segmentation_folder(const SegmentationFolderSettings& settings);

}  // namespace tessera
