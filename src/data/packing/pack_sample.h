#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/data/packing/pack.h"
#include "src/data/packing/sample_files.h"

namespace tessera {

/// A sample as stored in a shard: its files, and its digest for the fingerprint of the data set.
struct PackedSample {
  std::string key;
  std::vector<SampleFile> files;
  SampleDigest digest;
  std::string bad_reason;  // empty if the sample is good
  std::string bad_text;

  /// Returns the number of bytes that the files take in the tar.
  std::int64_t bytes() const;
};

/// Returns a key that fits WebDataset's rules: no dots in the last component, no image extension, valid UTF-8, short enough for
/// a tar. Equal keys stay equal; different keys may become equal.
std::string shard_key(const std::string& key);

/// Reads and prepares a sample. If the sample has no key because it cannot be read, the result's key is made from `index`. Throws what
/// `read` throws, except SampleError.
PackedSample pack_sample(const std::function<Sample()>& read, std::int64_t index, const PackSettings& settings,
                         const std::vector<std::string>& class_names, double depth_units);

}  // namespace tessera
