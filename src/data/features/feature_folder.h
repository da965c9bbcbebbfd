#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

#include "src/io/mapped_file.h"
#include <tessera/batch.h>

namespace tessera {

/// One of the tensors that a feature folder stores for each row, such as an image.
struct FeatureTensor {
  std::string name;                 // tokens, class_token or attention, as in EncodedImages; or kTaughtTensor (taught_folder.h)
  std::vector<std::int64_t> shape;  // shape for one row

  std::int64_t numel() const;
  friend bool operator==(const FeatureTensor&, const FeatureTensor&) = default;
};

/// The manifest's entry for a shard.
struct FeatureShard {
  std::string name;
  std::int64_t samples = 0;
  std::int64_t bytes = 0;  // size of the file
};

/// The manifest of a feature folder.
struct FeatureManifest {
  std::string settings;   // JSON of the settings that determine the encoder's output
  std::string weights;    // digest of the encoder's weights
  std::string precision;  // precision of the encoder's computations (training.precision)
  std::string data;       // the source's description (Source::describe)
  std::string dtype;      // float32, bfloat16 or float16
  std::int64_t samples = 0;
  std::map<std::string, std::int64_t> left_out;  // number of samples that could not be read, keyed by reason
  std::vector<FeatureTensor> tensors;
  std::vector<FeatureShard> shards;

  /// Returns the tensor of this name; null if it is not stored.
  const FeatureTensor* find(const std::string& name) const;
  at::ScalarType scalar_type() const;
  /// Returns the size in bytes of one image's features.
  std::int64_t bytes() const;
};

/// Reads the image features that FeatureWriter wrote, from safetensors shards that are mapped into memory. Features are looked up by the
/// sample's key and the image's fingerprint. Thread-safe.
class FeatureFolder {
 public:
  /// Reads the manifest and each shard's keys. Throws UserError if the features are missing or incomplete, or if a shard is
  /// missing or damaged.
  explicit FeatureFolder(std::string folder);

  const std::string& path() const { return folder_; }
  const FeatureManifest& manifest() const { return manifest_; }
  /// Returns the bytes of an image's tensors, one tensor after the other in the manifest's order. `image` is the image's
  /// fingerprint. Throws SampleError if the key is unknown (`no_features`) or if the features with this key belong to another
  /// image (`other_picture`). Throws UserError if these features are damaged.
  std::vector<std::uint8_t> read(const std::string& key, std::uint64_t image) const;

 private:
  // A shard that is mapped into memory.
  struct OpenedShard {
    std::string path;
    std::unique_ptr<io::MappedFile> file;
    std::int64_t samples = 0;
    std::string_view keys;                         // the keys' bytes, concatenated
    std::string_view key_ends, images, checksums;  // the bytes of int64 [samples] arrays
    std::vector<std::string_view> tensors;         // in the manifest's order
  };

  // Where a sample's features are stored. The list `places_` is sorted, first by `key`, the fingerprint of the sample's key.
  struct Place {
    std::uint64_t key = 0, image = 0;
    std::uint32_t shard = 0, row = 0;

    friend auto operator<=>(const Place&, const Place&) = default;
  };

  void open(const FeatureShard& listed);
  const Place& find(const std::string& key, std::uint64_t image) const;

  const std::string folder_;
  FeatureManifest manifest_;
  std::vector<OpenedShard> shards_;
  std::vector<Place> places_;
};

inline constexpr const char* kFeatureManifest = "features.json";
inline constexpr const char* kFeatureShardPrefix = "features-";
inline constexpr const char* kFeatureShardSuffix = ".safetensors";
inline constexpr const char* kFeatureWayOut = "write the features again with trainer --write-features";

/// Returns the text of a manifest file.
std::string manifest_text(const FeatureManifest& manifest);

/// Parses the text of a manifest. Throws UserError naming `path` if the text is malformed.
FeatureManifest parse_manifest(const std::string& text, const std::string& path);

/// Writes a feature folder. Files of an earlier writer are removed first. A shard appears in the folder when it is complete,
/// and the manifest is written last. A folder without a manifest counts as having no features.
class FeatureWriter {
 public:
  /// The caller sets the manifest's settings, weights, precision, data and dtype; the writer fills in the rest. A shard is closed when it
  /// reaches shard_bytes. Throws UserError if the folder cannot be written.
  FeatureWriter(std::string folder, FeatureManifest manifest, std::int64_t shard_bytes = std::int64_t{1} << 28);

  /// Adds the features of the images with these keys and fingerprints. Every call must pass tensors of the same names and shapes. Throws
  /// UserError naming the sample if a feature is not finite after conversion to the manifest's dtype.
  void add(const std::vector<std::string>& keys, const std::vector<std::uint64_t>& images,
           const EncodedImages& encoded);
  /// Does the same for rows of any tensors, [n, ...], and the fingerprints of what each row belongs to. Several rows may have the same key.
  using Tensors = std::map<std::string, at::Tensor>;
  void add(const std::vector<std::string>& keys, const std::vector<std::uint64_t>& contents, const Tensors& rows);
  /// Writes the last shard and the manifest, and returns the manifest. `left_out` holds the number of samples that could not be read, keyed
  /// by reason.
  FeatureManifest finish(const std::map<std::string, std::int64_t>& left_out);

 private:
  // The contents of the shard that is being written.
  struct OpenShard {
    std::map<std::string, std::vector<at::Tensor>> rows;
    std::string keys;
    std::vector<std::uint64_t> key_ends, images, checksums;
  };

  Tensors kept_of(const std::vector<std::string>& names, const Tensors& rows) const;
  void describe(const Tensors& kept);
  void close_shard();

  const std::string folder_;
  FeatureManifest manifest_;
  const std::int64_t shard_bytes_;
  OpenShard open_;
};

}  // namespace tessera
