#pragma once

#include <optional>
#include <string>

#include <tessera/batch.h>
#include <tessera/config/fields.h>

namespace tessera {

/// What the settings `duplicates` and `chunk` say of themselves.
inline constexpr const char* kDuplicatesHelp =
    "what a caption is to another image that has the same picture or carries the same caption: a negative, masked (left "
    "out), or a positive";
inline constexpr const char* kCaptionChunkHelp =
    "images in a tile: similarities are made tile by tile, forward and again backward, to save memory, and the result is "
    "the same; null: as many as suit the device";

/// Settings that all objectives on images with K captions have in common; their keys stand among the objective's own.
struct CaptionSettings {
  std::string image_view = "image";
  std::string text_view = "captions";
  std::string duplicates = "negative";
  std::optional<std::int64_t> chunk;

  /// The two views, of which the objective wants `image` and `text`, and what follows from the other settings.
  Needs needs(ViewNeeds image = {}, ViewNeeds text = {}) const;
};

template <class Visitor>
void fields(Visitor& v, CaptionSettings& s) {
  v("image_view", s.image_view, "the image view");
  v("text_view", s.text_view, "the text view: captions, of K captions per image, or one of a single text");
  v("duplicates", s.duplicates, kDuplicatesHelp, config::one_of({"negative", "masked", "positive"}));
  v("chunk", s.chunk, kCaptionChunkHelp, config::at_least(1));
}

}  // namespace tessera
