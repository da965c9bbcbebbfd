#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/evaluation/metrics/retrieval.h>

namespace tessera::metrics {

struct KPrecisionScores {
  std::vector<std::int64_t> top1;    // chosen caption of each image
  std::vector<double> per_image;     // -1 if the chosen caption has no word
  std::vector<double> per_image_na;  // over words of the lexicon only; -1 if there are none
  double k_precision = 0;
  double k_precision_na = 0;
  std::int64_t count = 0;  // images that have a value
  std::int64_t count_na = 0;
};

/// Splits a caption into maximal runs of ASCII letters, digits and non-ASCII characters, with ASCII letters lower-cased.
std::vector<std::string> caption_words(std::string_view caption);

/// Returns the most similar text of each image, [images]; the first one at ties. Works in tiles, so that a large similarity
/// matrix is never held whole.
std::vector<std::int64_t> best_texts(const SimilarityTile& similarity, std::int64_t images, std::int64_t texts);

/// Measures how faithful retrieved captions are (SPARC, section 4.3): the share of the words of each image's best caption,
/// top1[n], that occur in that image's own captions. caption_image[m] is the image of caption m, or -1 if it has none. With
/// clip_counts a word counts at most as often as it occurs there. Without a lexicon the *_na values cover all words.
KPrecisionScores k_precision(const std::vector<std::int64_t>& top1, const std::vector<std::string>& captions,
                             const std::vector<std::int64_t>& caption_image,
                             const std::optional<std::vector<std::string>>& lexicon, bool clip_counts = false);

/// The same with the best caption by scores [N, M] float.
KPrecisionScores k_precision(const at::Tensor& scores, const std::vector<std::string>& captions,
                             const std::vector<std::int64_t>& caption_image,
                             const std::optional<std::vector<std::string>>& lexicon, bool clip_counts = false);

}  // namespace tessera::metrics
