#pragma once

#include <memory>
#include <optional>
#include <string>

#include <tessera/config/file_path.h>
#include <tessera/data/source.h>

namespace tessera {

/// Pictures in folders: PATH/CLASS/.../picture.jpg, classes numbered in the order of their sorted names (as
/// torchvision's ImageFolder); or pictures in PATH itself, or in folders that are no classes, as img2dataset writes them:
/// PATH/00000/000000000.jpg with .txt and .json beside each.
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
    "file of lines PICTURE<tab>CAPTION, pictures relative to the folder; null: captions.tsv in the folder, if it is "
    "there");
  v("texts", s.texts,
    "folder with the pictures' texts: NAME.txt of picture NAME, one caption a line; null: beside the pictures");
  v("classes", s.classes,
    "whether the folders inside are classes; null: yes, unless they are img2dataset's (names of digits alone, with "
    "NAME_stats.json beside them, or .txt or .json files beside their pictures)");
  v("template", s.template_,
    "caption of a picture that has none (in `captions`, in a .txt file beside it, one a line, or in the fields caption "
    "and captions of a .json file); {} becomes the class name; empty: no caption");
}

/// Throws UserError when the folder or the captions file is missing or holds nothing.
std::shared_ptr<IndexedSource> make_image_folder(const ImageFolderSettings& settings);

}  // namespace tessera
