#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/features/feature_folder.h"

namespace tessera {

/// Stored embeddings of teachers, side by side in one tensor: one for each of `crops` training crops of an image, and one for each text of
/// a sample. They are two feature folders, FOLDER/images and FOLDER/texts, whose rows are found by the sample's key and a fingerprint of
/// what the embedding belongs to: the image, the image view and the number of the crop, or the text. Thread-safe.
class TaughtFolder {
 public:
  /// Throws UserError if embeddings are missing or incomplete, or if images and texts do not belong together.
  explicit TaughtFolder(const std::string& folder);

  const std::string& path() const { return path_; }
  /// Returns the manifest of the images' embeddings; that of the texts' has the same settings, weights, dtype and tensors.
  const FeatureManifest& manifest() const { return images_.manifest(); }
  std::int64_t width() const { return manifest().tensors.front().shape.front(); }
  std::int64_t crops() const { return crops_; }
  /// Return the bytes of an embedding. Throw UserError naming the sample if there is none. `image` is the image's fingerprint.
  std::vector<std::uint8_t> of_crop(const std::string& key, std::uint64_t image, const std::string& view, std::int64_t crop) const;
  std::vector<std::uint8_t> of_text(const std::string& key, std::string_view text) const;

 private:
  std::string path_;
  FeatureFolder images_, texts_;
  std::int64_t crops_ = 1;
};

/// Returns the bytes of a text's row in a folder whose rows belong to texts. Throws UserError naming the sample if there is none.
std::vector<std::uint8_t> read_text_row(const FeatureFolder& folder, const std::string& key, std::string_view text);

/// Return what FeatureWriter::add() takes as the fingerprint of a row of a TaughtFolder.
std::uint64_t crop_fingerprint(std::uint64_t image, const std::string& view, std::int64_t crop);
std::uint64_t text_fingerprint(std::string_view text);

inline constexpr const char* kTaughtTensor = "embedding";
inline constexpr const char* kTaughtImages = "/images";
inline constexpr const char* kTaughtTexts = "/texts";  // also of data.features
inline constexpr const char* kPooledTensor = "pooled";  // EncodedImages::pooled

}  // namespace tessera
