#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/data/loading/sample_reader.h"
#include "src/data/packing/pack.h"
#include <tessera/sample.h>

namespace tessera {

/// One file of a sample: its name after the key ("txt", "mask.png") and its bytes.
struct SampleFile {
  std::string name;
  std::string content;
};

/// A sample as stored in a shard: its files, and its digest for the fingerprint of the data set.
struct PackedSample : SampleOutcome {
  std::vector<SampleFile> files;
  SampleDigest digest;

  /// Returns the number of bytes that the files take in the tar.
  std::int64_t bytes() const;
};

/// Returns a key that fits WebDataset's rules: no dots in the last component, no image extension, valid UTF-8, short enough for
/// a tar. Equal keys stay equal; different keys may become equal.
std::string shard_key(const std::string& key);

/// Makes the files of a sample. Throws SampleError if the sample is bad.
void pack_sample(Sample& sample, const PackSettings& settings, const std::vector<std::string>& class_names, double depth_units,
                 PackedSample& out);

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

/// Makes a short text from an image's captions, for data sets without summaries (PyramidCLIP trains on summaries by a language model).
/// Bracketed text, links and tags are removed first. Then the function chooses, from the sentences of all captions, the sentence whose
/// words are most frequent on average (the first step of SumBasic, Nenkova and Vanderwende 2005). Words of fewer than four letters do not
/// count, and the first sentence wins a tie. A sentence of more than `max_words` words is cut to that number of words or, if there is a
/// comma in the second half of these words, at the last such comma. Returns an empty text if the captions hold no word.
std::string summarize(const std::vector<std::string>& captions, std::size_t max_words = 12);

}  // namespace tessera
