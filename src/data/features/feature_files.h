#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/data/features/feature_folder.h>

/// The files of a feature folder: the manifest, and shards with the tensors of FeatureManifest [samples, ...] and int64
/// tensors [samples]: `pictures` (the images' fingerprints), `checksums` (of the features) and `key_ends` (where each key ends
/// in `keys`, the concatenated bytes of the keys).
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

/// Formats the manifest.
std::string manifest_text(const FeatureManifest& manifest, const std::vector<FeatureShard>& shards);

/// Parses the text of a manifest. Throws UserError naming `path`.
FeatureManifest parse_manifest(const std::string& text, const std::string& path, std::vector<FeatureShard>& shards);

}  // namespace tessera
