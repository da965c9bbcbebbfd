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
  std::string name = "shard";  // shards are NAME-00000.tar, ...
  std::int64_t samples_per_shard = 1000;
  std::int64_t bytes_per_shard = 0;  // maximum size of a shard in bytes; 0: no limit. A larger sample gets a shard of its own
  std::int64_t resize = 0;           // maximum length in pixels of an image's shorter side; larger images are reduced to it; 0: no resizing
  std::int64_t quality = 95;         // quality of the JPEG files that resizing writes
  std::int64_t gray_range = 65535;   // value of white in gray images of 16 bits that are resized (Decoding)
  std::string format = "jpg";        // jpg or png: file format for images that are resized or not encoded yet
  bool summarize = false;            // whether samples without a summary get one (summarize.h)
  // maximum share of bad samples, checked from the 100th sample on and at the end; 0: stop at the first bad sample. A call that continues
  // an interrupted one may have another share, because it does not change which samples are written.
  double max_bad_share = 0.1;
  std::int64_t threads = 1;          // affects only speed
};

template <class Visitor>
void fields(Visitor& v, PackSettings& s) {
  v("name", s.name, "shards are NAME-00000.tar, ...");
  v("samples_per_shard", s.samples_per_shard, "samples in a shard", config::at_least(1));
  v("bytes_per_shard", s.bytes_per_shard, "maximum bytes in a shard, 0: no limit", config::at_least(0));
  v("resize", s.resize, "reduce larger images to this many pixels on the shorter side; 0: keep the files' own bytes", config::at_least(0));
  v("quality", s.quality, "quality of the JPEG files that resizing writes", config::in_range(1, 100));
  v("gray_range", s.gray_range, "value of white in gray images of 16 bits, which resizing writes with 8 bits", config::in_range(255, 65535));
  v("format", s.format, "format of images that are resized or not encoded yet", config::one_of({"jpg", "png"}));
  v("summarize", s.summarize, "whether samples without a summary get one made from their captions' words");
}

struct PackResult {
  std::vector<std::string> shards;          // paths
  std::int64_t samples = 0;                 // number of samples written
  std::int64_t bytes = 0;                   // total size of the shards
  std::map<std::string, std::int64_t> bad;  // skipped samples, by reason
  std::string manifest;                     // path
  std::string fingerprint;
  bool was_complete = false;  // true: an earlier call had completed the set, so nothing was written
};

/// Writes a source's samples, in order, as WebDataset shards that the source `webdataset` reads back unchanged, if its setting
/// `depth_units` is the source's depth_units(). Also writes the manifest NAME.json, which holds the settings, the source, the shards (each
/// with the index of its first sample), the numbers of samples and bytes, the number of bad samples by reason, the first 1,000 bad samples,
/// and the fingerprint. Images keep their files' bytes unless they are resized. Keys are adapted to WebDataset: no dots, no image
/// extension. The fields of a sample's own JSON side file are kept, in addition to those that pack() writes. The fields width and height
/// are updated for a resized image. A field `caption` whose text is not among the sample's captions is renamed original_caption. Captions
/// are dropped if they are blank or not UTF-8. A sample is bad if its image cannot be decoded or if all its captions are dropped.
///
/// Each shard appears in the folder when it is complete, and is then listed in the manifest. After an interruption, the same call continues
/// after the last complete shard and writes exactly the bytes that an uninterrupted run would have written. If the set is complete already,
/// nothing is written. Throws UserError if shards of this name are from another source or other settings, if the folder's classes.txt lists
/// other classes, if too many samples are bad, or if the folder cannot be written. `progress` receives the number of samples done and
/// `begun_at`, the index of the first sample that this call writes.
PackResult pack(const Source& source, const std::string& source_settings, const PackSettings& settings,
                const std::function<void(std::int64_t done, std::int64_t begun_at)>& progress = {});

/// A digest of everything in a sample except its key and the side-file fields that no reader uses.
struct SampleDigest {
  std::uint64_t low = 0, high = 0;
};
SampleDigest compute_digest(const Sample& sample);

/// The fingerprint of a data set. It is equal for data sets with the same samples (key, image file or pixels, and everything
/// else they hold), regardless of the samples' order and shards.
class SetFingerprint {
 public:
  void add(const std::string& key, const SampleDigest& digest);
  /// Returns the fingerprint as 32 hexadecimal digits.
  std::string text() const;
  /// Restores a fingerprint from its text, so that more samples can be added.
  static SetFingerprint parse(const std::string& text);

 private:
  std::uint64_t low_ = 0, high_ = 0;  // sums of all samples' 64-bit hashes; each sum uses a different hash function
};

}  // namespace tessera
