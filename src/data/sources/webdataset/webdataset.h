#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/data/formats/image_endings.h"
#include "src/data/sources/rows.h"
#include <tessera/data/stream.h>

namespace tessera {

/// How to read shards that are streams: the output of commands, and compressed tars.
struct StreamSettings {
  std::int64_t buffer = 1000;
  std::optional<std::int64_t> samples;
  std::int64_t retries = 3;
  std::string on_failure = "stop";
  double timeout = 60;
};

template <class Visitor>
void fields(Visitor& v, StreamSettings& s) {
  v("buffer", s.buffer, "number of samples kept in memory, from which the next one is drawn at random", config::at_least(1));
  v("samples", s.samples, "samples in an epoch, over all processes; null: count them at the start, which reads all data once",
    config::at_least(1));
  v("retries", s.retries, "how often a failed stream is read again from its start, skipping the samples already read", config::at_least(0));
  v("on_failure", s.on_failure,
    "after the last retry: stop the run, or skip the rest of this stream (counted as one bad sample, shard_failed)",
    config::one_of({"stop", "skip"}));
  v("timeout", s.timeout, "seconds without output after which a command counts as failed", config::above(0));
}

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
/// file is a member of its sample; the member's name is the rest of the file name in lower case ("jpg", "txt"). The fields of the sample's
/// row are its members and, as json.NAME, the fields of its json member.
struct WebDatasetSettings : RowSettings {
  WebDatasetSettings(PathList from = {}) {  // NOLINT: files are a source
    path = std::move(from);
    image_keys = with_image_endings();
    caption_keys = {"txt", "caption", "text"};
    label_keys = {"cls"};
    mask_keys = {"mask.png", "seg.png"};
    depth_keys = {"depth.png"};
    summary_keys = {"summary.txt"};
    object_keys = {"objects.txt"};
    region_keys = {"regions.npy", "regions.safetensors"};
  }
  std::vector<std::string> json_captions = {"caption", "captions"};
  bool caption_lines = false;
  Names npy_fields;
  IndexPlace index_cache = {"beside"};
  std::int64_t open_shards = 8;
  StreamSettings stream;
};

template <class Visitor>
void fields(Visitor& v, WebDatasetSettings& s) {
  v("path", s.path,
    "tar files: one, a list, a pattern (train-{00000..00004}.tar, *.tar), or a folder of them, local or remote (see data.cache); as "
    "streams: .tar.gz, .tgz, and the output of commands (pipe:COMMAND {000..099})");
  v("json_captions", s.json_captions,
    "fields of the json member that hold a caption or a list of captions, in addition to the members in caption_keys; text_fields, "
    "negatives_keys and regions_keys name fields of the json member, too");
  v("caption_lines", s.caption_lines, "make each line of a caption member a caption of its own");
  v("npy_fields", s.npy_fields,
    "names for the numbers in the member npy, in their order (DataComp's metadata of groups, such as region and year); "
    "they become fields of "
    "the sample, as those of the json member are");
  v("index_cache", s.index_cache,
    "where the indices of shards are stored for the next start: beside (SHARD.index, next to the shard; for remote shards, in "
    "data.cache.folder), a folder, or off");
  v("open_shards", s.open_shards,
    "for remote shards, the number of shards from which samples are drawn at a time; data.cache.size_mb must hold them",
    config::in_range(1, 4096));
  v("stream", s.stream, "how to read shards that are streams");
  fields(v, static_cast<RowSettings&>(s));
}

/// Indexes the shards by their tar headers; for this, a remote shard whose index is not stored is fetched. If a shard is remote, the samples
/// of a shard are a group (Source::group_starts). If one of the shards is a stream (a command, a compressed tar), all shards are read as
/// streams; see StreamSource. A truncated shard yields its complete samples and a warning. Duplicate keys, keys whose members are not adjacent, and
/// samples without an image are counted and reported. Throws UserError if a shard is missing or not a tar, or if no samples are left.
std::shared_ptr<Source> make_webdataset(const WebDatasetSettings& settings);
/// Reads all shards as streams. `settings` are those that ShardMapper needs.
std::shared_ptr<StreamSource> make_streamed_webdataset(const WebDatasetSettings& settings, std::vector<std::string> shards);

}  // namespace tessera
