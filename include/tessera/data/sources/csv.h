#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tessera/config/file_path.h>
#include <tessera/data/formats/paths.h>
#include <tessera/data/source.h>

namespace tessera {

/// Pictures that a table names, with OpenCLIP's columns unless others are given. A row is a sample.
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
    "text tables whose first line names the columns: one, a list, a pattern, or a folder of .csv files");
  v("separator", s.separator,
    "what stands between columns: one character, tab or comma (OpenCLIP's --csv-separator); null: the tab, comma, semicolon or | "
    "that the first line holds");
  v("image_key", s.image_key, "column of the picture's file name (--csv-img-key)");
  v("caption_key", s.caption_key, "columns of captions; each that is not empty gives one (--csv-caption-key)");
  v("text_fields", s.text_fields,
    "columns of texts that the view `captions` draws its sentences from; an empty field is none. With caption_key: [] the "
    "first of a row's gives its captions");
  v("label_key", s.label_key, "column of the class: its index, or its name; empty: none");
  v("summary_key", s.summary_key, "column of the one-line summary; empty: none");
  v("object_key", s.object_key, "column of the text of object tags; empty: none");
  v("region_key", s.region_key, "column of a file of region features, .npy or .safetensors of [R, F]; empty: none");
  v("region_tensor", s.region_tensor, "name of the tensor in .safetensors region files; empty: the first");
  v("mask_key", s.mask_key, "column of a PNG file of class indices; empty: none");
  v("root", s.root,
    "folder that file names are relative to; null: the table's, or the current one when the first picture is only "
    "there");
  v("classes", s.classes,
    "file of class names, one a line; null: the sorted names in the column, if they are not all numbers");
  v("background_class", s.background_class, "index of the background class in masks, -1: none");
}

/// How to read a table of which only the path is given: with the defaults, and the separator that its first line holds.
/// `given` is what messages call it ("--source a.csv"). Throws UserError when it has other columns; that shows the
/// settings to write.
CsvSettings csv_settings_of(const std::string& path, const std::string& given);

/// Throws UserError naming file, line and column.
std::shared_ptr<IndexedSource> make_csv(const CsvSettings& settings);

}  // namespace tessera
