#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/data/pack.h>
#include <tessera/data/shard_writer.h>

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

/// Reads sample `index` and makes it ready. Throws UserError as the source does.
PackedSample pack_sample(const Source& source, std::int64_t index, const PackSettings& settings,
                         const std::vector<std::string>& class_names);

}  // namespace tessera
