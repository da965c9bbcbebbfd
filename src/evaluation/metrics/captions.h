#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "src/evaluation/metrics/retrieval.h"

namespace tessera::metrics {

struct KPrecisionScores {
  std::vector<std::int64_t> top1;    // for each image, the index of its best caption: the one most similar to it
  std::vector<double> per_image;     // k-precision of each image; -1 if the image's best caption has no word
  std::vector<double> per_image_na;  // k-precision of each image over lexicon words; -1 if the image's best caption has no lexicon word
  double k_precision = 0;
  double k_precision_na = 0;
};

/// Splits a caption into words: maximal runs of ASCII letters, digits and non-ASCII characters. Makes ASCII letters lower-case.
std::vector<std::string> caption_words(std::string_view caption);

/// Returns the index of the most similar text for each image; at ties, the lowest index. Works in tiles, so that a large similarity
/// matrix is never in memory as a whole.
std::vector<std::int64_t> best_texts(const SimilarityTile& similarity, std::int64_t images, std::int64_t texts);

/// Measures how faithful retrieved captions are (SPARC, section 4.3): the share of words in image n's best caption, the caption top1[n],
/// that also occur in the image's own captions. caption_image[m] is the image of caption m, or -1 if the caption has no image. With
/// clip_counts, a word counts at most as often as it occurs in the image's own captions. The *_na values (nouns and adjectives) count only
/// words in the lexicon; without a lexicon they count all words.
KPrecisionScores k_precision(const std::vector<std::int64_t>& top1, const std::vector<std::string>& captions,
                             const std::vector<std::int64_t>& caption_image,
                             const std::optional<std::vector<std::string>>& lexicon, bool clip_counts = false);

struct CiderScores {
  std::vector<double> per_image;
  double mean = 0;
};

/// Returns the CIDEr-D scores of one caption c per image against the image's M references r (Vedantam et al. 2015, section 5). A
/// score is the similarity of the n-grams' tf-idf weights:
///   10 / (4 M) sum over n = 1..4, over the M references r of
///     exp(-(words(c) - words(r))^2 / (2 sigma^2)) sum over g of min(w_c(g), w_r(g)) w_r(g) / (|w_c| |w_r|)
/// where w(g) is the count of the n-gram g times log(images / max(1, images with g in a reference)); a term is 0 if a norm is 0.
/// caption_words() (k_precision.h) splits captions into lower-case words and numbers. Scores range from 0 to 10; 10 means that all
/// n-grams agree. An image without references scores 0. In a set of one image all n-grams have weight 0. Throws c10::Error if
/// `captions` and `references` have different sizes.
CiderScores cider_d(const std::vector<std::string>& captions, const std::vector<std::vector<std::string>>& references, double sigma = 6);

}  // namespace tessera::metrics
