#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/data/features/feature_folder.h"
#include <tessera/batch.h>

namespace tessera {

/// Writes a feature folder. Files of an earlier writer are removed first. A shard appears in the folder when it is complete,
/// and the manifest is written last. A folder without a manifest counts as having no features.
class FeatureWriter {
 public:
  /// The caller sets the manifest's settings, weights, precision, data and dtype; the writer fills in the rest. A shard is closed when it
  /// reaches shard_bytes. Throws UserError if the folder cannot be written.
  FeatureWriter(const std::string& folder, FeatureManifest manifest, std::int64_t shard_bytes = std::int64_t{1} << 28);
  ~FeatureWriter();

  /// Adds the features of the images with these keys and fingerprints. Every call must pass tensors of the same names and shapes. Throws
  /// UserError naming the sample if a feature is not finite after conversion to the manifest's dtype.
  void add(const std::vector<std::string>& keys, const std::vector<std::uint64_t>& pictures,
           const EncodedPictures& encoded);
  /// Writes the last shard and the manifest, and returns the manifest. `left_out` holds the number of samples that could not be read, keyed
  /// by reason.
  FeatureManifest finish(const std::map<std::string, std::int64_t>& left_out);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
