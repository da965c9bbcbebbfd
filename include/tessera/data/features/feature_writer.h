#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <tessera/batch.h>
#include <tessera/data/features/feature_folder.h>

namespace tessera {

/// Writes a feature folder: shards that appear whole under their names, and at the end the manifest, without which the
/// folder holds no features. What an earlier writer left there is removed first.
class FeatureWriter {
 public:
  /// Of the manifest settings, weights, precision, data and dtype are given; the rest is filled in. A shard is closed
  /// when it has reached shard_bytes. Throws UserError when the folder cannot be written.
  FeatureWriter(const std::string& folder, FeatureManifest manifest, std::int64_t shard_bytes = std::int64_t{1} << 28);
  ~FeatureWriter();

  /// Features of some pictures; every call has the same tensors. Throws UserError naming the sample whose features are
  /// not finite in the manifest's dtype.
  void add(const std::vector<std::string>& keys, const std::vector<std::uint64_t>& pictures,
           const EncodedPictures& encoded);
  /// Writes what is left and the manifest. left_out: samples that could not be read, by reason. Returns the manifest.
  FeatureManifest finish(const std::map<std::string, std::int64_t>& left_out);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
