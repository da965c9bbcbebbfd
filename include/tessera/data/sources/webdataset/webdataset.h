#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tessera/config/file_path.h>
#include <tessera/data/formats/paths.h>
#include <tessera/data/source.h>
#include <tessera/data/sources/webdataset/stream_settings.h>

namespace tessera {

/// Where the indices of shards are kept: the words beside and off, or a folder.
struct IndexPlace : config::OutputPath {
  using OutputPath::OutputPath;
};

template <>
struct config::Value<IndexPlace> {
  static IndexPlace read(const Node& node, const std::string& path, const IndexPlace&);
  static Node dump(const IndexPlace& value) { return Value<FilePath>::dump(value); }
  static std::string type() { return "string"; }
};

/// Samples in plain tar shards, grouped as the WebDataset library does: a sample's key is the member's path up to the
/// first dot of its file name, what follows (in lower case) is the name of the member.
struct WebDatasetSettings {
  PathList path;
  std::vector<std::string> image_keys = {"jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff"};
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
    "tar files: one, a list, a pattern (train-{00000..00004}.tar, *.tar), or a folder of them; as streams: .tar.gz, "
    ".tgz, "
    "and what commands write (pipe:aws s3 cp s3://b/{000..099}.tar -)");
  v("image_keys", s.image_keys, "members that hold the picture; the first one there is taken");
  v("caption_keys", s.caption_keys, "members that hold a caption; each one there gives one");
  v("json_captions", s.json_captions,
    "fields of the json member that hold a caption or a list of them, beside those of the caption members");
  v("text_fields", s.text_fields,
    "fields of the json member, each a text or a list of texts, that the view `captions` draws its sentences from; a sample "
    "may lack some. Of samples without captions the first of them gives the captions");
  v("caption_lines", s.caption_lines, "each line of a caption member is a caption of its own");
  v("label_keys", s.label_keys,
    "members that hold the class: its index, or its name in `classes`; json.NAME is a field of the json member");
  v("mask_keys", s.mask_keys, "members that hold a PNG of class indices");
  v("depth_keys", s.depth_keys, "members that hold a grey PNG of 16 bits with each pixel's depth, 0 where it is unknown");
  v("depth_units", s.depth_units, "of those PNGs to the meter: 1000 (NYU, SUN RGB-D), 256 (KITTI)", config::above(0));
  v("summary_keys", s.summary_keys, "members (or json.NAME) that hold the one-line summary");
  v("object_keys", s.object_keys, "members (or json.NAME) that hold the text of object tags, or a list of them");
  v("region_keys", s.region_keys, "members that hold region features [R, F], .npy or .safetensors of floats");
  v("region_tensor", s.region_tensor, "name of the tensor in .safetensors region features; empty: the first");
  v("classes", s.classes, "file of class names, one a line; null: classes.txt beside the first shard, if it is there");
  v("background_class", s.background_class, "index of the background class in masks, -1: none");
  v("index_cache", s.index_cache,
    "where the indices of shards are kept for the next start: beside (SHARD.index), a folder, or off");
  v("stream", s.stream, "how shards are read that come as streams");
}

/// Indexes the shards by their headers; when one of them is a stream (a command, a compressed tar), all are read as
/// streams, see StreamSource. A shard that is cut off gives its complete samples and a warning; keys that
/// come twice, keys whose members lie apart, and samples without a picture are counted and reported. Throws UserError
/// when a shard is missing or is no tar, or nothing is left.
std::shared_ptr<Source> make_webdataset(const WebDatasetSettings& settings);

}  // namespace tessera
