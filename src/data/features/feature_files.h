#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "src/data/features/feature_folder.h"

/// A feature folder contains a manifest and shards. A shard contains the tensors that FeatureManifest lists, each [samples, ...], and
/// `keys`, the concatenated bytes of the samples' keys. It also contains three int64 tensors [samples]: `key_ends` (where each key ends in
/// `keys`), `pictures` (the images' fingerprints) and `checksums` (of the features).
namespace tessera {

inline constexpr const char* kFeatureManifest = "features.json";
inline constexpr const char* kFeatureShardPrefix = "features-";
inline constexpr const char* kFeatureShardSuffix = ".safetensors";
inline constexpr const char* kFeatureWayOut = "write the features again with trainer --write-features";

/// The manifest's entry for a shard.
struct FeatureShard {
  std::string name;
  std::int64_t samples = 0;
  std::int64_t bytes = 0;  // size of the file
};

/// Returns the text of a manifest file.
std::string manifest_text(const FeatureManifest& manifest, const std::vector<FeatureShard>& shards);

/// Parses the text of a manifest. Throws UserError naming `path` if the text is malformed.
FeatureManifest parse_manifest(const std::string& text, const std::string& path, std::vector<FeatureShard>& shards);

}  // namespace tessera
