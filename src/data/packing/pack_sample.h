#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <tessera/data/packing/pack.h>
#include <tessera/data/packing/shard_writer.h>

namespace tessera {

/// A sample as its shard holds it: the files, and what the fingerprint adds for it.
struct PackedSample {
  std::string key;
  std::vector<SampleFile> files;
  SampleDigest digest;
  std::string bad_reason;  // empty: good
  std::string bad_text;

  /// Of the tar that the files take.
  std::int64_t bytes() const;
};

/// A key that WebDataset's rules leave whole: no dots in the last component, no picture's extension, valid UTF-8, short
/// enough for a tar. Equal for equal keys; different ones may come out equal.
std::string shard_key(const std::string& key);

/// Reads a sample and makes it ready. index: what it is called as long as its key is not known. Throws what `read`
/// throws but SampleErrors.
PackedSample pack_sample(const std::function<Sample()>& read, std::int64_t index, const PackSettings& settings,
                         const std::vector<std::string>& class_names);

}  // namespace tessera
