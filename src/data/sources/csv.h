#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/data/formats/paths.h"
#include <tessera/config/file_path.h>
#include <tessera/data/source.h>

namespace tessera {

/// Images listed in a table, by default with OpenCLIP's column names. Each row is a sample.
struct CsvSettings {
  PathList path;
  std::optional<std::string> separator;
  std::string image_key = "filepath";
  std::vector<std::string> caption_key = {"title"};
  std::vector<std::string> text_fields;
  std::string label_key;
  std::string summary_key;
  std::string object_key;
  std::string region_key;
  std::string region_tensor;
  std::string mask_key;
  std::optional<config::FilePath> root;
  std::optional<config::FilePath> classes;
  std::int64_t background_class = -1;
};

template <class Visitor>
void fields(Visitor& v, CsvSettings& s) {
  v("path", s.path,
    "text tables with the column names in the first line: one file, a list, a pattern, or a folder of .csv files");
  v("separator", s.separator,
    "separator of columns: one character, tab or comma (OpenCLIP's --csv-separator); null: the tab, comma, semicolon or | found in "
    "the first line");
  v("image_key", s.image_key, "column with the image's file name (--csv-img-key)");
  v("caption_key", s.caption_key, "columns with captions; each nonempty field is one caption (--csv-caption-key)");
  v("text_fields", s.text_fields,
    "columns with texts that the view `captions` draws its sentences from; empty fields are ignored. With caption_key: [] the "
    "first nonempty one supplies a row's captions");
  v("label_key", s.label_key, "column with the class: its index, or its name; empty: none");
  v("summary_key", s.summary_key, "column with the one-line summary; empty: none");
  v("object_key", s.object_key, "column with the text of object tags; empty: none");
  v("region_key", s.region_key, "column with the name of a file of region features [R, F], .npy or .safetensors; empty: none");
  v("region_tensor", s.region_tensor, "name of the tensor in .safetensors region files; empty: the first");
  v("mask_key", s.mask_key, "column with the name of a PNG file of class indices; empty: none");
  v("root", s.root,
    "folder that file names are relative to; null: the table's folder, or the current folder if the first image exists only "
    "there");
  v("classes", s.classes,
    "file of class names, one per line; null: the sorted names in the column, if they are not all numbers");
  v("background_class", s.background_class, "index of the background class in masks, -1: none");
}

/// Returns the settings for a table when only its path is known: the defaults, and the separator found in its first line. `given` is the
/// table's name in messages ("--source a.csv"). Throws UserError if the table lacks the default columns; the message shows the settings to
/// write.
CsvSettings csv_settings_of(const std::string& path, const std::string& given);

/// Throws UserError naming file, line and column if the table is malformed.
std::shared_ptr<IndexedSource> make_csv(const CsvSettings& settings);

}  // namespace tessera
