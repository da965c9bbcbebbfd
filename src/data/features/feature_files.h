#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/data/features/feature_folder.h>

/// The files of a feature folder: the manifest, and shards that hold the tensors of FeatureManifest [samples, ...] and,
/// of each sample, the picture's fingerprint, the checksum of its features, and the key: int64 `pictures`, `checksums`
/// and `key_ends` [samples], the last being places in `keys`, the keys' bytes one after the other.
namespace tessera {

inline constexpr const char* kFeatureManifest = "features.json";
inline constexpr const char* kFeatureShardPrefix = "features-";
inline constexpr const char* kFeatureShardSuffix = ".safetensors";
inline constexpr const char* kFeatureWayOut = "write the features again with trainer --write-features";

/// A shard as the manifest lists it.
struct FeatureShard {
  std::string name;
  std::int64_t samples = 0;
  std::int64_t bytes = 0;  // of the file
};

/// The manifest's text.
std::string manifest_text(const FeatureManifest& manifest, const std::vector<FeatureShard>& shards);

/// Reads such a text. Throws UserError naming `path`.
FeatureManifest parse_manifest(const std::string& text, const std::string& path, std::vector<FeatureShard>& shards);

}  // namespace tessera
