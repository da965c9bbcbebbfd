#pragma once

#include <optional>
#include <string>

#include <tessera/batch.h>
#include <tessera/config/fields.h>

namespace tessera {

/// Help texts of the settings `duplicates` and `chunk`.
inline constexpr const char* kDuplicatesHelp =
    "how a sample's caption counts for another sample that has the same image or the same caption: negative; masked: left out; positive";
inline constexpr const char* kCaptionChunkHelp =
    "number of images per tile: to save memory, similarities are computed tile by tile, and again in the backward pass; the result "
    "does not change; null: a number that suits the device";

/// Settings shared by all objectives on images with K captions. Their keys are part of the objective's own settings.
struct CaptionSettings {
  std::string image_view = "image";
  std::string text_view = "captions";
  std::string duplicates = "negative";
  std::optional<std::int64_t> chunk;

  /// Returns the needs of the two views: the given `image` and `text`, plus what these settings require.
  Needs needs(ViewNeeds image = {}, ViewNeeds text = {}) const;
};

void fields(auto& v, CaptionSettings& s) {
  v("image_view", s.image_view, "the image view");
  v("text_view", s.text_view, "the text view: captions (K captions per image), or a view with one text per image");
  v("duplicates", s.duplicates, kDuplicatesHelp, config::one_of({"negative", "masked", "positive"}));
  v("chunk", s.chunk, kCaptionChunkHelp, config::at_least(1));
}

}  // namespace tessera
