#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/data/loading/sample_reader.h"
#include "src/data/packing/pack.h"
#include "src/data/packing/sample_files.h"

namespace tessera {

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

}  // namespace tessera
