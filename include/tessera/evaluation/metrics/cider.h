#pragma once

#include <string>
#include <vector>

namespace tessera::metrics {

struct CiderScores {
  std::vector<double> per_image;
  double mean = 0;
};

/// Returns CIDEr-D of one caption per image against the image's references (Vedantam et al. 2015, section 5), the similarity of
/// their tf-idf weights of n-grams:
///   10 / (4 M) sum over n = 1..4, over the M references r of
///     exp(-(words(c) - words(r))^2 / (2 sigma^2)) sum over g of min(w_c(g), w_r(g)) w_r(g) / (|w_c| |w_r|)
/// where w(g) is the count of the n-gram g times log(images / max(1, images with g in a reference)); a term is 0 if a norm is
/// 0. caption_words() (k_precision.h) splits captions into lower-case words and numbers. Scores range from 0 to 10, which
/// means that all n-grams agree. An image without references scores 0, and in a set of one image all n-grams weigh 0. Throws
/// c10::Error if the numbers of images differ.
CiderScores cider_d(const std::vector<std::string>& captions, const std::vector<std::vector<std::string>>& references,
                    double sigma = 6);

}  // namespace tessera::metrics
