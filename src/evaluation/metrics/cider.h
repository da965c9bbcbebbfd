#pragma once

#include <string>
#include <vector>

namespace tessera::metrics {

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
CiderScores cider_d(const std::vector<std::string>& captions, const std::vector<std::vector<std::string>>& references,
                    double sigma = 6);

}  // namespace tessera::metrics
