#pragma once

#include <string>
#include <vector>

namespace tessera::metrics {

struct CiderScores {
  std::vector<double> per_image;
  double mean = 0;
};

/// CIDEr-D of one caption per image against the image's references (Vedantam et al. 2015, section 5): the similarity of their
/// tf-idf weights of n-grams,
///   10 / (4 M) sum over n = 1..4, over the M references r of
///     exp(-(words(c) - words(r))^2 / (2 sigma^2)) sum over g of min(w_c(g), w_r(g)) w_r(g) / (|w_c| |w_r|)
/// with w(g) the count of the n-gram g times log(images / images with g in a reference, at least 1), 0 where a norm is 0.
/// Captions are split by caption_words() (k_precision.h): lower-case words and numbers. From 0 to 10 where the two agree in
/// every n-gram; an image without references has 0. All n-grams of a set of one image weigh 0. Throws c10::Error if the
/// numbers of images differ.
CiderScores cider_d(const std::vector<std::string>& captions, const std::vector<std::vector<std::string>>& references,
                    double sigma = 6);

}  // namespace tessera::metrics
