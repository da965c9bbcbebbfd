#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/data/formats/image_endings.h"
#include "src/data/formats/paths.h"
#include <tessera/config/file_path.h>
#include <tessera/data/source.h>

namespace tessera {

/// Rows of Parquet files and of Arrow streams and files. Each row is a sample. A column name with dots refers to a member of a structure
/// (`meta.caption`) or of a list of structures (`sentences.raw`).
struct ParquetSettings {
  PathList path;
  std::vector<std::string> image_keys = with_image_endings({"image"});
  std::vector<std::string> caption_keys = {"caption", "text", "captions", "txt", "json.caption"};
  std::vector<std::string> text_fields;
  std::vector<std::string> label_keys = {"label", "cls"};
  std::vector<std::string> summary_keys = {"summary"};
  std::optional<std::vector<std::string>> side_fields;
  std::optional<config::FilePath> root;
  std::optional<config::FilePath> classes;
  std::int64_t memory_mb = 1024;
};

template <class Visitor>
void fields(Visitor& v, ParquetSettings& s) {
  v("path", s.path,
    "Parquet or Arrow files: one file, a list, a pattern (train-*.parquet), a folder of them, or a folder written by Hugging Face "
    "datasets' save_to_disk");
  v("image_keys", s.image_keys,
    "columns with the image: its file's bytes, {bytes, path} as in Hugging Face datasets, or a file name; the first existing column "
    "is used");
  v("caption_keys", s.caption_keys,
    "columns with captions, each a text or a list of texts; all existing columns are used, and a caption that a row "
    "has twice counts once");
  v("text_fields", s.text_fields,
    "columns, each a text or a list of texts, that the view `captions` draws its sentences from. For rows without captions the "
    "first of these columns supplies the captions");
  v("label_keys", s.label_keys,
    "columns with the class: its index, or its name in `classes`; the first existing column is used");
  v("summary_keys", s.summary_keys, "columns with the one-line summary; the first existing column is used");
  v("side_fields", s.side_fields,
    "further columns to keep with each sample; null: all except binary columns and lists of numbers");
  v("root", s.root, "folder that image file names are relative to; null: the Parquet file's folder");
  v("classes", s.classes,
    "file of class names, one per line; null: the names in the Parquet file's features (Hugging Face's ClassLabel)");
  v("memory_mb", s.memory_mb,
    "maximum MiB of row groups in memory per process; it limits the number of row groups (at most 64) from which samples are "
    "drawn at a time",
    config::at_least(1));
}

/// The files' footers tell how many rows there are. The rows of a damaged row group are bad samples (`bad_row_group`). Throws UserError if
/// a file is missing, is not a table, has a damaged footer or lacks a column that the first file has. Also throws UserError if no column
/// holds images, or if Arrow is missing; the message then says what to install.
std::shared_ptr<IndexedSource> make_parquet(const ParquetSettings& settings);

}  // namespace tessera
