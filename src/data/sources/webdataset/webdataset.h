#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/data/formats/image_endings.h"
#include "src/data/formats/paths.h"
#include "src/data/sources/webdataset/stream_settings.h"
#include <tessera/config/file_path.h>
#include <tessera/data/source.h>

namespace tessera {

/// Where the indices of shards are stored: a folder, or one of the words "beside" and "off".
struct IndexPlace : config::OutputPath {
  using OutputPath::OutputPath;
};

template <>
struct config::Value<IndexPlace> {
  static IndexPlace read(const Node& node, const std::string& path, const IndexPlace&);
  static Node dump(const IndexPlace& value) { return Value<FilePath>::dump(value); }
  static std::string type() { return "string"; }
};

/// Samples in plain tar shards, grouped as in the WebDataset library: a sample's key is the path up to the first dot of the file name. Each
/// file is a member of its sample; the member's name is the rest of the file name in lower case ("jpg", "txt").
struct WebDatasetSettings {
  PathList path;
  std::vector<std::string> image_keys = with_image_endings();
  std::vector<std::string> caption_keys = {"txt", "caption", "text"};
  std::vector<std::string> json_captions = {"caption", "captions"};
  std::vector<std::string> text_fields;
  bool caption_lines = false;
  std::vector<std::string> label_keys = {"cls"};
  std::vector<std::string> mask_keys = {"mask.png", "seg.png"};
  std::vector<std::string> depth_keys = {"depth.png"};
  double depth_units = 1000;
  std::vector<std::string> summary_keys = {"summary.txt"};
  std::vector<std::string> object_keys = {"objects.txt"};
  std::vector<std::string> region_keys = {"regions.npy", "regions.safetensors"};
  std::string region_tensor;
  std::optional<config::FilePath> classes;
  std::int64_t background_class = -1;
  IndexPlace index_cache = {"beside"};
  StreamSettings stream;
};

template <class Visitor>
void fields(Visitor& v, WebDatasetSettings& s) {
  v("path", s.path,
    "tar files: one, a list, a pattern (train-{00000..00004}.tar, *.tar), or a folder of them; as streams: .tar.gz, .tgz, "
    "and the output of commands (pipe:aws s3 cp s3://b/{000..099}.tar -)");
  v("image_keys", s.image_keys, "members that hold the image; the first existing member is used");
  v("caption_keys", s.caption_keys, "members that hold a caption; all existing members are used");
  v("json_captions", s.json_captions,
    "fields of the json member that hold a caption or a list of captions, in addition to the caption members");
  v("text_fields", s.text_fields,
    "fields of the json member, each a text or a list of texts, that the view `captions` draws its sentences from; a sample "
    "may lack some. For samples without captions the first of these fields supplies the captions");
  v("caption_lines", s.caption_lines, "make each line of a caption member a caption of its own");
  v("label_keys", s.label_keys,
    "members that hold the class: its index, or its name in `classes`; json.NAME is a field of the json member");
  v("mask_keys", s.mask_keys, "members that hold a PNG of class indices");
  v("depth_keys", s.depth_keys, "members that hold a 16-bit gray PNG with each pixel's depth, 0 where it is unknown");
  v("depth_units", s.depth_units, "units of those PNGs per meter: 1000 (NYU, SUN RGB-D), 256 (KITTI)", config::above(0));
  v("summary_keys", s.summary_keys, "members (or json.NAME) that hold the one-line summary");
  v("object_keys", s.object_keys, "members (or json.NAME) that hold the text of object tags, or a list of them");
  v("region_keys", s.region_keys, "members that hold region features [R, F], .npy or .safetensors of floats");
  v("region_tensor", s.region_tensor, "name of the tensor in .safetensors region features; empty: the first");
  v("classes", s.classes, "file of class names, one per line; null: classes.txt next to the first shard, if it exists");
  v("background_class", s.background_class, "index of the background class in masks, -1: none");
  v("index_cache", s.index_cache,
    "where the indices of shards are stored for the next start: beside (SHARD.index, next to the shard), a folder, or off");
  v("stream", s.stream, "how to read shards that are streams");
}

/// Indexes the shards by their tar headers. If one of the shards is a stream (a command, a compressed tar), all shards are read as streams;
/// see StreamSource. A truncated shard yields its complete samples and a warning. Duplicate keys, keys whose members are not adjacent, and
/// samples without an image are counted and reported. Throws UserError if a shard is missing or not a tar, or if no samples are left.
std::shared_ptr<Source> make_webdataset(const WebDatasetSettings& settings);

}  // namespace tessera
