#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/data/formats/image_endings.h"
#include "src/data/sources/rows.h"

namespace tessera {

/// Images listed in a table, by default with OpenCLIP's column names. Each row is a sample.
struct CsvSettings : RowSettings {
  CsvSettings(PathList from = {}) {  // NOLINT: files are a source
    path = std::move(from);
    image_keys = {"filepath"};
    caption_keys = {"title"};
  }
  std::optional<std::string> separator;
  std::optional<config::FilePath> root;
};

template <class Visitor>
void fields(Visitor& v, CsvSettings& s) {
  v("path", s.path,
    "text tables with the column names in the first line: one file, a list, a pattern, or a folder of .csv files, local or remote (see "
    "data.cache)");
  v("separator", s.separator,
    "separator of columns: one character, tab or comma (OpenCLIP's --csv-separator); null: the tab, comma, semicolon or | found in "
    "the first line");
  v("root", s.root,
    "folder that file names are relative to; null: the table's folder, or the current folder if the first image exists only there");
  fields(v, static_cast<RowSettings&>(s));
}

/// Images listed in files of JSON objects, one per line: DOCCI, ImageInWords and others. The extension of an image's name may be missing.
struct JsonLinesSettings : RowSettings {
  JsonLinesSettings(PathList from = {}) {  // NOLINT: files are a source
    path = std::move(from);
    image_keys = {"image"};
    caption_keys = {"caption"};
  }
  config::FilePath images;
  std::string split;
  bool sentences = false;
};

template <class Visitor>
void fields(Visitor& v, JsonLinesSettings& s) {
  v("path", s.path,
    "files with one JSON object per line: one file, a list, a pattern, or a folder of .jsonl files, local or remote (see data.cache)");
  v("images", s.images, "folder of the images; empty: the folder of the list");
  v("split", s.split, "read only the lines of this split, such as test; empty: all");
  v("sentences", s.sentences,
    "make each sentence a caption of its own: texts are split at full stops, line ends and </s> (FLAIR's fine-grained retrieval)");
  fields(v, static_cast<RowSettings&>(s));
}

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
  std::string configuration, split;
  std::optional<std::vector<std::string>> side_fields;
  std::optional<config::FilePath> root;
  std::int64_t memory_mb = 1024;
};

template <class Visitor>
void fields(Visitor& v, ParquetSettings& s) {
  v("path", s.path,
    "Parquet or Arrow files: one file, a list, a pattern (train-*.parquet), a folder of them, or a folder written by Hugging Face "
    "datasets' save_to_disk or downloaded from the Hub; local or remote (see data.cache)");
  v("configuration", s.configuration,
    "configuration of the data set in the folder `path`, as its README.md or its folders name it; empty: the default one");
  v("split", s.split,
    "split of the data set in the folder `path`, such as test; empty: all files in the folder or, if README.md lists configurations or the "
    "folder has no files itself, train");
  v("side_fields", s.side_fields, "further columns to keep with each sample; null: all except binary columns and lists of numbers");
  v("root", s.root, "folder that image file names are relative to; null: the Parquet file's folder");
  v("memory_mb", s.memory_mb,
    "maximum MiB of row groups in memory per process; it limits the number of row groups (at most 64) from which samples are "
    "drawn at a time",
    config::at_least(1));
  fields(v, static_cast<RowSettings&>(s));
}

/// Returns the settings for a table when only its path is known: the defaults, and the separator found in its first line. `given` is the
/// table's name in messages ("--source a.csv"). Throws UserError if the table lacks the default columns; the message shows the settings to
/// write.
CsvSettings csv_settings_of(const std::string& path, const std::string& given);

/// These functions throw UserError naming file and line if a list is malformed, or lacks a column or member that the settings name. Rows
/// that cannot be read are bad samples.
std::shared_ptr<IndexedSource> make_csv(const CsvSettings& settings);
std::shared_ptr<IndexedSource> make_json_lines(const JsonLinesSettings& settings);

/// The files' footers tell how many rows there are. The rows of a damaged row group are bad samples (`bad_row_group`). A caption that a row
/// has twice counts once. A folder stands for its .parquet files or, if it has none, for its .arrow files; a folder of the Hub's layout
/// stands for the files of `configuration` and `split` (src/data/formats/published_tables.h). Throws UserError if a file is missing, is not
/// a table, has a damaged footer or lacks a column that the first file has. Also throws UserError if no column holds images, or if Arrow is
/// missing; the message then says what to install.
std::shared_ptr<IndexedSource> make_parquet(const ParquetSettings& settings);

}  // namespace tessera
