#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <tessera/data/source.h>

namespace tessera {

struct ShardSettings {
  std::string folder;
  std::string name = "shard";  // files NAME-00000.tar, ...
  std::int64_t samples_per_shard = 1000;
  std::string format = "png";  // of images that are not encoded yet: png or jpg (quality 95)
  std::int64_t threads = 1;    // affects only speed
};

/// One file of a sample: its name after the key ("txt", "mask.png") and its bytes.
struct SampleFile {
  std::string name;
  std::string content;
};

/// Returns the files that make up a sample in a WebDataset shard, in the order they are written:
///   png|jpg      the image
///   txt          the first caption
///   cls          the label
///   mask.png     class indices of the pixels
///   depth.png    depths of the pixels in millimeters
///   summary.txt, objects.txt
///   regions.npy  float32 [regions, width]
///   json         captions (all), and, if present: summary, object_tags, label, class, objects
///                [{label, class, box: [top, left, height, width], phrase, span: [begin, end]}], negatives [{kind,
///                caption}]
/// Files for anything the sample lacks are left out.
std::vector<SampleFile> sample_files(const Sample& sample, const std::vector<std::string>& class_names,
                                     const std::string& format);

/// Writes all samples of the source, in order, as plain tar shards, and classes.txt next to them if the source has classes.
/// The same samples produce the same bytes. `progress` is called with the number of samples done, from several threads but
/// never two at once. Throws UserError if the folder already holds shards of this name or cannot be written. Returns the
/// shards' paths.
std::vector<std::string> write_shards(const IndexedSource& source, const ShardSettings& settings,
                                      const std::function<void(std::int64_t)>& progress = {});

}  // namespace tessera
