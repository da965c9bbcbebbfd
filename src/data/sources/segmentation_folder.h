#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tessera/config/file_path.h>
#include <tessera/data/source.h>

namespace tessera {

/// Images and their masks in two folders, under the same names: PATH/PICTURES/NAME.jpg, PATH/MASKS/NAME.png.
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
  v("pictures", s.pictures, "folder of the images within it: JPEGImages, leftImg8bit/val, ...");
  v("masks", s.masks, "folder of the masks within it, PNG files of class values (gray levels or palette indices)");
  v("list", s.list,
    "text file within it that names the samples, one per line, without suffix; empty: all images of the folder and its "
    "subfolders");
  v("picture_suffix", s.picture_suffix, "the image's file name is the sample's name plus this: .jpg, _leftImg8bit.png, ...");
  v("mask_suffix", s.mask_suffix, "the mask's file name is the sample's name plus this: .png, _gtFine_labelIds.png, ...");
  v("classes", s.classes,
    "file of class names, one class per line, in the order of their values; several names of a class are separated by "
    "commas; null: the task supplies the names");
  v("values", s.values,
    "each class's value in the masks, in the order of the classes; pixels of other values are ignored; empty: 0, 1, 2, ...",
    config::in_range(0, 255));
  v("reduce_zero_label", s.reduce_zero_label,
    "ignore pixels of value 0, and make value 1 the first class (mmsegmentation's setting of this name)");
  v("ignored_value", s.ignored_value, "value of pixels to ignore", config::in_range(0, 255));
  v("background_class", s.background_class, "index of the background among the classes, -1: none",
    config::at_least(-1));
}

std::optional<config::Problem> validate(const SegmentationFolderSettings& settings);

/// Samples are in the order of the list, or sorted by name; a key is an image's name within PATH. Throws UserError if a file or
/// folder is missing or empty, or if `values` and the class names do not agree.
std::shared_ptr<IndexedSource> make_segmentation_folder(const SegmentationFolderSettings& settings);

}  // namespace tessera
