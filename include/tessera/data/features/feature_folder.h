#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

namespace tessera {

/// One of the tensors that a feature folder keeps of each picture.
struct FeatureTensor {
  std::string name;                 // tokens, class_token or attention, as in EncodedPictures
  std::vector<std::int64_t> shape;  // of one picture

  std::int64_t numel() const;
  friend bool operator==(const FeatureTensor&, const FeatureTensor&) = default;
};

/// What a feature folder says of itself.
struct FeatureManifest {
  std::string settings;   // JSON of the settings that decide what the encoder gives for a picture
  std::string weights;    // digest of the encoder's weights
  std::string precision;  // that it computed in (training.precision)
  std::string data;       // the source, in its own words (Source::describe)
  std::string dtype;      // float32, bfloat16 or float16
  std::int64_t samples = 0;
  std::map<std::string, std::int64_t> left_out;  // samples that could not be read, by reason
  std::vector<FeatureTensor> tensors;

  /// The tensor of this name; null if it is not kept.
  const FeatureTensor* find(const std::string& name) const;
  at::ScalarType scalar_type() const;
  /// Of one picture.
  std::int64_t bytes() const;
};

/// Features of a data set's pictures in a folder, as FeatureWriter leaves them: safetensors shards, mapped into memory,
/// found by the sample's key and the picture's fingerprint. Thread-safe.
class FeatureFolder {
 public:
  /// Reads the manifest and each shard's keys. Throws UserError: there are no whole features, or a shard is missing or
  /// damaged.
  explicit FeatureFolder(const std::string& folder);
  ~FeatureFolder();

  const std::string& path() const;
  const FeatureManifest& manifest() const;
  /// What is kept of a picture: its tensors one after the other, in the manifest's order. Throws SampleError
  /// (`no_features`: none of this key; `other_picture`: of this key, but of another picture), UserError when the shard
  /// is damaged in this place.
  std::vector<std::uint8_t> read(const std::string& key, std::uint64_t picture) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
