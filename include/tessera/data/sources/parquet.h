#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tessera/config/file_path.h>
#include <tessera/data/formats/paths.h>
#include <tessera/data/source.h>

namespace tessera {

/// Rows of Parquet files and of Arrow's streams and files. A row is a sample. Names of columns may lead into structures and
/// lists of them, with dots: `meta.caption`, `sentences.raw`.
struct ParquetSettings {
  PathList path;
  std::vector<std::string> image_keys = {"image", "jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff"};
  std::vector<std::string> caption_keys = {"caption", "text", "captions"};
  std::vector<std::string> text_fields;
  std::vector<std::string> label_keys = {"label", "cls"};
  std::vector<std::string> summary_keys = {"summary"};
  std::vector<std::string> key_keys = {"key", "__key__"};
  std::optional<std::vector<std::string>> side_fields;
  std::optional<config::FilePath> root;
  std::optional<config::FilePath> classes;
  std::int64_t memory_mb = 1024;
};

template <class Visitor>
void fields(Visitor& v, ParquetSettings& s) {
  v("path", s.path,
    "Parquet or Arrow files: one, a list, a pattern (train-*.parquet), a folder of them, or one that save_to_disk of "
    "Hugging Face "
    "datasets wrote");
  v("image_keys", s.image_keys,
    "columns of the picture: its file's bytes, {bytes, path} as datasets have it, or a file's name; the first one "
    "there is taken");
  v("caption_keys", s.caption_keys, "columns of captions, each a text or a list of texts; each one there gives some");
  v("text_fields", s.text_fields,
    "columns, each a text or a list of texts, that the view `captions` draws its sentences from. Of rows without "
    "captions the "
    "first of them gives the captions");
  v("label_keys", s.label_keys,
    "columns of the class: its index, or its name in `classes`; the first one there is taken");
  v("summary_keys", s.summary_keys, "columns of the one-line summary; the first one there is taken");
  v("key_keys", s.key_keys, "columns of what a sample is called; the first one there is taken, without one FILE:ROW");
  v("side_fields", s.side_fields,
    "further columns that are kept with each sample; null: all but binary ones and lists of numbers");
  v("root", s.root, "folder that file names of pictures are relative to; null: that of the Parquet file");
  v("classes", s.classes,
    "file of class names, one a line; null: those in the file's features (Hugging Face's ClassLabel)");
  v("memory_mb", s.memory_mb,
    "MiB of row groups that each process has in memory at most; they decide from how many row groups at a time, 64 at "
    "most, "
    "samples are drawn",
    config::at_least(1));
}

/// Counts are those of the files' footers. A row group that is damaged makes bad samples of its rows (`bad_row_group`). Throws
/// UserError when a file is missing, is no table, has a damaged footer or lacks a column that the first one has, when no
/// column holds pictures, and, in one line that says what to install, without Arrow.
std::shared_ptr<IndexedSource> make_parquet(const ParquetSettings& settings);

}  // namespace tessera
