#pragma once

#include <string>
#include <vector>

#include <tessera/data/sample.h>

namespace tessera {

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
///   depth.png    depths of the pixels, `depth_units` per meter
///   summary.txt, objects.txt
///   regions.npy  float32 [regions, width]
///   json         captions (all), and, if present: summary, object_tags, label, class, objects
///                [{label, class, box: [top, left, height, width], phrase, span: [begin, end]}], negatives [{kind,
///                caption}]
/// Files for anything the sample lacks are left out.
std::vector<SampleFile> sample_files(const Sample& sample, const std::vector<std::string>& class_names,
                                     const std::string& format, double depth_units = 1000);

}  // namespace tessera
