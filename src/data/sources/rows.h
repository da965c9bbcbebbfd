#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "src/data/formats/captions.h"
#include "src/data/formats/paths.h"
#include <tessera/config/file_path.h>
#include <tessera/data/source.h>

namespace tessera {

/// The settings that say which fields of a row hold what: the same for tables, JSON lines, Parquet and shards. Each format has its own
/// default names.
struct RowSettings {
  using Names = std::vector<std::string>;
  PathList path;
  Names image_keys, caption_keys, text_fields, label_keys, summary_keys, object_keys, mask_keys, depth_keys, region_keys;
  Names negatives_keys = {"negatives"}, regions_keys = {"regions"};
  std::string region_tensor;
  double depth_units = 1000;
  std::optional<config::FilePath> classes;
  std::int64_t background_class = -1;
};

template <class Visitor>
void fields(Visitor& v, RowSettings& s) {
  v("image_keys", s.image_keys,
    "fields with the image: its file's bytes, {bytes, path} as in Hugging Face datasets, or a file name; the first existing field is used");
  v("caption_keys", s.caption_keys, "fields with captions, each a text or a list of texts; all existing fields are used");
  v("text_fields", s.text_fields,
    "fields, each a text or a list of texts, that the view `captions` draws its sentences from; a sample may lack some. For samples without "
    "captions the first of these fields supplies the captions");
  v("label_keys", s.label_keys, "fields with the class: its index, or its name in `classes`; the first existing field is used");
  v("summary_keys", s.summary_keys, "fields with the one-line summary; the first existing field is used");
  v("object_keys", s.object_keys, "fields with the text of object tags, or a list of them; the first existing field is used");
  v("mask_keys", s.mask_keys, "fields with a PNG of class indices, or its file name");
  v("depth_keys", s.depth_keys, "fields with a 16-bit gray PNG of each pixel's depth, 0 where it is unknown, or its file name");
  v("depth_units", s.depth_units, "units of those PNGs per meter: 1000 (NYU, SUN RGB-D), 256 (KITTI)", config::above(0));
  v("region_keys", s.region_keys, "fields with region features [R, F], .npy or .safetensors of floats, or their file name");
  v("region_tensor", s.region_tensor, "name of the tensor in .safetensors region features; empty: the first");
  v("negatives_keys", s.negatives_keys,
    "fields with the image's hard negatives, captions that are wrong: a list of texts or of {kind, caption}");
  v("regions_keys", s.regions_keys,
    "fields with the image's objects: a list of {box: [left, top, right, bottom] in pixels, phrase, negatives: [texts that almost describe "
    "it]}");
  v("classes", s.classes,
    "file of class names, one per line; null: classes.txt next to the first shard, the names in a Parquet file's features (Hugging Face's "
    "ClassLabel), or the sorted names in a table's column");
  v("background_class", s.background_class, "index of the background class in masks, -1: none");
}

/// Returns the settings with the present names of former keys: `image_key: a` means `image_keys: [a]`. Warns once of each former key.
config::Node with_present_names(const config::Node& settings, const std::string& path);

namespace config {
/// Reads the settings of a source of rows, which may have former names.
template <HasFields T>
  requires std::derived_from<T, RowSettings>
T read(const Node& node, const std::string& path = "", T defaults = {}) {
  read_fields(with_present_names(node, path), path, visit_fields<T>, &defaults);
  if constexpr (HasValidate<T>) check_problem(node, path, validate(static_cast<const T&>(defaults)));
  return defaults;
}
}  // namespace config

/// One row of a data set: named fields, each a text, a JSON value or the bytes of a file.
class Row {
 public:
  virtual ~Row() = default;
  /// Returns a field's value; null if the row lacks it.
  virtual nlohmann::json value(const std::string& name) const = 0;
  /// Returns a field as text without white space around it (json_text()); nullopt if the row lacks the field.
  virtual std::optional<std::string> text(const std::string& name) const;
  /// Returns the bytes of the file that a field holds or names; nullopt if there is none. If the named file is missing, throws SampleError
  /// with the reason `missing`.
  virtual std::optional<std::string> file(const std::string& name, const char* missing) const = 0;
  /// Returns the side fields, which become Sample::fields; null if there are none.
  virtual const nlohmann::json* side() const { return nullptr; }
  /// Returns why the side fields cannot be read; empty if they can.
  virtual std::string bad_side() const { return {}; }
};

/// Returns the text of the first of these fields that the row has (Row::text()); empty if it has none.
std::string first_text(const Row& row, const RowSettings::Names& names);

/// Uses the texts of the first nonempty text field as captions of a sample that has none.
void set_captions_from_fields(Sample& sample);

/// Sets a sample's label from a text, which is a class index (-1: no label) or a class name. If `classes` is empty, an index has no upper
/// limit, and a name is stored as Sample::class_name. Throws SampleError `bad_label` if the index is below -1, or if `classes` is not empty
/// and lacks the index or name, or has the name twice.
void set_label(const std::string& text, const std::vector<std::string>& classes, Sample& sample);

/// Describes where the needed fields come from: "caption is looked for in txt and text (caption_keys)". `classes` is the number of known
/// classes.
std::string describe_rows(const RowSettings& settings, std::size_t classes, const std::vector<std::string>& needed);

/// Makes samples from rows according to the settings. Thread-safe.
class RowMapper {
 public:
  /// How a format of rows differs from others.
  struct Format {
    std::string name;  // for messages: "parquet a.parquet"
    // The prefix of names that refer to side fields, such as "json."; text_fields are written without it. A caption in a side field
    // replaces equal captions before it.
    std::string side_prefix = {};
    bool each_once = false;      // whether a caption that several fields hold counts once
    bool sentences = false;      // whether each sentence of a caption is a caption of its own
    // whether rows are kept in a list, which takes captions from text fields and looks for line breaks itself
    bool is_list = false;
    std::string break_hint = {};  // what to do about captions with line breaks
  };
  /// Reads `classes`, or else takes `classes_there`.
  RowMapper(RowSettings settings, Format format, std::vector<std::string> classes_there = {});

  /// Sets everything that a row has in a sample with a key. A sample without an image keeps `encoded` empty. These functions throw
  /// SampleError if the row is damaged.
  void read(const Row& row, Sample& sample) const;
  /// Sets the captions and text fields.
  void read_texts(const Row& row, Sample& sample) const;
  /// Sets everything except the label and what files hold.
  void read_fields(const Row& row, Sample& sample) const;

  const RowSettings& settings() const { return settings_; }
  const std::vector<std::string>& classes() const { return classes_; }

 private:
  void note_line_breaks(const Sample& sample) const;

  RowSettings settings_;
  Format format_;
  std::vector<std::string> classes_;
  mutable LineBreaks breaks_;
  mutable std::atomic<bool> noted_breaks_ = false, noted_side_ = false;
};

}  // namespace tessera
