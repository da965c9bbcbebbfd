#pragma once

#include <memory>
#include <optional>
#include <string>

#include <tessera/config/file_path.h>
#include <tessera/data/source.h>

namespace tessera {

/// Images in folders. Either there is one folder per class, PATH/CLASS/.../image.jpg, and classes are numbered in the order of their sorted
/// names (as in torchvision's ImageFolder). Or the images are in PATH itself or in folders that are not classes, as img2dataset writes
/// them: PATH/00000/000000000.jpg with .txt and .json files next to each image.
struct ImageFolderSettings {
  config::FilePath path;
  std::optional<config::FilePath> captions;
  std::optional<config::FilePath> texts;
  std::optional<bool> classes;
  std::string template_ = "a photo of a {}.";
};

template <class Visitor>
void fields(Visitor& v, ImageFolderSettings& s) {
  v("path", s.path, "the folder");
  v("captions", s.captions,
    "file of lines IMAGE<tab>CAPTION, with image names relative to the folder; null: captions.tsv in the folder, if it exists");
  v("texts", s.texts,
    "folder with the images' texts: NAME.txt for image NAME, one caption per line; null: next to the images");
  v("classes", s.classes,
    "whether the folders inside are classes; null: yes, unless img2dataset wrote them (their names have only digits, and there is "
    "NAME_stats.json next to a folder, or a .txt or .json file in it)");
  v("template", s.template_,
    "caption for an image that has none (in `captions`, in a .txt file next to it, one per line, or in the fields caption and "
    "captions of a .json file); {} becomes the class name; empty: no caption");
}

/// Throws UserError if the folder or the captions file is missing or empty.
std::shared_ptr<IndexedSource> make_image_folder(const ImageFolderSettings& settings);

}  // namespace tessera
