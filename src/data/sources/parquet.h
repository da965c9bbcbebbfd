#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/data/formats/image_endings.h"
#include "src/data/sources/rows.h"

namespace tessera {

/// Rows of Parquet files and of Arrow streams and files. Each row is a sample. A column name with dots refers to a member of a structure
/// (`meta.caption`) or of a list of structures (`sentences.raw`).
struct ParquetSettings : RowSettings {
  ParquetSettings(PathList from = {}) {  // NOLINT: files are a source
    path = std::move(from);
    image_keys = with_image_endings({"image"});
    caption_keys = {"caption", "text", "captions", "txt", "json.caption"};
    label_keys = {"label", "cls"};
    summary_keys = {"summary"};
  }
  std::optional<std::vector<std::string>> side_fields;
  std::optional<config::FilePath> root;
  std::int64_t memory_mb = 1024;
};

template <class Visitor>
void fields(Visitor& v, ParquetSettings& s) {
  v("path", s.path,
    "Parquet or Arrow files: one file, a list, a pattern (train-*.parquet), a folder of them, or a folder written by Hugging Face "
    "datasets' save_to_disk");
  v("side_fields", s.side_fields, "further columns to keep with each sample; null: all except binary columns and lists of numbers");
  v("root", s.root, "folder that image file names are relative to; null: the Parquet file's folder");
  v("memory_mb", s.memory_mb,
    "maximum MiB of row groups in memory per process; it limits the number of row groups (at most 64) from which samples are "
    "drawn at a time",
    config::at_least(1));
  fields(v, static_cast<RowSettings&>(s));
}

/// The files' footers tell how many rows there are. The rows of a damaged row group are bad samples (`bad_row_group`). A caption that a row has
/// twice counts once. A folder stands for its .parquet files or, if it has none, for its .arrow files. Throws UserError if a file is missing,
/// is not a table, has a damaged footer or lacks a column that the first file has. Also throws UserError if no column holds images, or if Arrow
/// is missing; the message then says what to install.
std::shared_ptr<IndexedSource> make_parquet(const ParquetSettings& settings);

}  // namespace tessera
