#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tessera/data/source.h>
#include <tessera/data/tokenizers/tokenizer.h>

namespace tessera {

struct InspectSettings {
  std::int64_t samples = 0;                    // number of samples to read, spread over the source in case it is sorted; 0: all
  std::int64_t threads = 1;                    // affects only speed
  std::shared_ptr<const Tokenizer> tokenizer;  // counts the captions' tokens; null: tokens are not counted
  std::string dump;                            // output file with one JSON object per sample, each on its own line; empty: no file
  std::int64_t images = 0;                   // number of good samples, spread over the source, to return with their decoded images
};

struct Inspection {
  /// A JSON object with the keys source, samples, read, images (Source::image_ids()), captions, captions_with_line_breaks, fingerprint (null unless
  /// all samples were read), bad (by reason), bad_examples (by reason), repeated (keys, pictures, pairs), image_sizes,
  /// different_image_sizes, width, height, file_bytes, captions_per_sample, characters_per_caption, words_per_caption, tokens_per_caption,
  /// objects_per_sample, labels, samples_with (by field), exif_orientation (images with another one than 1) and gray_16_bit (their count
  /// and largest value).
  std::string report;
  std::vector<Sample> images;
};

/// Reads and decodes samples of a source and collects statistics about them. Throws UserError if the source does, or if the dump cannot be
/// written.
Inspection inspect(const Source& source, const InspectSettings& settings,
                   const std::function<void(std::int64_t done, std::int64_t total)>& progress);

}  // namespace tessera
