#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <tessera/data/source.h>

namespace tessera {

struct PackSettings {
  std::string folder;
  std::string name = "shard";  // files NAME-00000.tar, ...
  std::int64_t samples_per_shard = 1000;
  std::int64_t bytes_per_shard = 0;  // of the tar; 0: not bounded. A sample larger than that has a shard of its own
  std::int64_t resize = 0;           // pixels of the shorter side, for pictures that are larger; 0: as they are
  std::int64_t quality = 95;         // of the JPEG files that resizing writes
  std::string format = "jpg";        // of pictures that are resized, or not encoded: jpg or png
  bool summarize = false;            // samples without a summary get one (summarize.h)
  double max_bad_share = 0.1;        // judged from the 100th sample on, and at the end; 0: the first bad one stops
  std::int64_t threads = 1;          // changes nothing but speed
};

template <class Visitor>
void fields(Visitor& v, PackSettings& s) {
  v("name", s.name, "shards are NAME-00000.tar, ...");
  v("samples_per_shard", s.samples_per_shard, "samples in a shard", config::at_least(1));
  v("bytes_per_shard", s.bytes_per_shard, "bytes of a shard at most, 0: any number", config::at_least(0));
  v("resize", s.resize, "pixels of the shorter side, 0: the files' own bytes", config::at_least(0));
  v("quality", s.quality, "of the JPEG files that resizing writes", config::in_range(1, 100));
  v("format", s.format, "of pictures that are resized, or not encoded", config::one_of({"jpg", "png"}));
  v("summarize", s.summarize, "whether samples without a summary get one of their captions' words");
  v("max_bad_share", s.max_bad_share, "stop when more samples are bad (judged from the 100th on, and at the end)",
    config::in_range(0, 1));
}

struct PackResult {
  std::vector<std::string> shards;          // paths
  std::int64_t samples = 0;                 // written
  std::int64_t bytes = 0;                   // of the shards
  std::map<std::string, std::int64_t> bad;  // left out, by reason
  std::string manifest;                     // path
  std::string fingerprint;
  bool was_complete = false;  // by an earlier call: nothing was written
};

/// Writes a source's samples, in order, as WebDataset shards that `webdataset` reads back equal, and NAME.json, the
/// manifest: settings, source, shards with their first sample, counts, bad samples by reason with the first 1,000 of
/// them, the fingerprint. Pictures keep their files' bytes unless they are resized. Keys are made fit for WebDataset:
/// no dots, no picture's extension. What a sample's JSON side file held stays beside what is written here (width and
/// height of a resized picture become its own; a `caption` that is none of the captions is called original_caption).
/// Captions that are blank or not UTF-8 are dropped; a picture that cannot be decoded,
/// or whose captions are all dropped, is bad.
///
/// Each shard appears when it is complete, and then the manifest knows it: the same call goes on behind the last one,
/// and writes what an unbroken run would have written, byte for byte. Complete already: writes nothing. Throws
/// UserError: shards of this name by another source or other settings, too many bad samples, a folder that cannot be
/// written.
PackResult pack(const Source& source, const std::string& source_settings, const PackSettings& settings,
                const std::function<void(std::int64_t done, std::int64_t begun_at)>& progress = {});

/// Stands for all that a sample holds but its key and the fields of its side file that nobody reads.
struct SampleDigest {
  std::uint64_t low = 0, high = 0;
};
SampleDigest digest_of(const Sample& sample);

/// Equal for data sets of the same samples (key; the picture's file or pixels; all else they hold), in whatever order
/// and shards they come.
class SetFingerprint {
 public:
  void add(const std::string& key, const SampleDigest& digest);
  /// 32 hexadecimal digits.
  std::string text() const;
  /// Goes on from a text.
  static SetFingerprint parse(const std::string& text);

 private:
  std::uint64_t low_ = 0, high_ = 0;  // sums over the samples
};

}  // namespace tessera
