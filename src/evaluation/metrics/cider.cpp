#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>

#include <c10/util/Exception.h>

#include "src/evaluation/metrics/cider.h"
#include "src/evaluation/metrics/k_precision.h"

namespace tessera::metrics {
namespace {

constexpr std::size_t kLongestGram = 4;

/// Counts of the n-grams of a text. counts[n - 1] maps each sequence of n words, joined by spaces, to its count.
struct Grams {
  std::array<std::map<std::string, double>, kLongestGram> counts;
  double words = 0;
};

Grams grams_of(std::string_view caption) {
  const std::vector<std::string> words = caption_words(caption);
  Grams out;
  out.words = static_cast<double>(words.size());
  for (std::size_t first = 0; first < words.size(); ++first) {
    std::string gram;
    for (std::size_t n = 0; n < kLongestGram && first + n < words.size(); ++n) {
      gram += (n == 0 ? "" : " ") + words[first + n];
      ++out.counts[n][gram];
    }
  }
  return out;
}

/// Counts, for each n-gram, the images that have a reference caption with this n-gram.
class ImageCounts {
 public:
  explicit ImageCounts(const std::vector<std::vector<Grams>>& references) : images_(static_cast<double>(references.size())) {
    for (const std::vector<Grams>& of_image : references) {
      std::set<std::string> seen;
      for (const Grams& grams : of_image)
        for (const auto& counts : grams.counts)
          for (const auto& [gram, count] : counts) seen.insert(gram);
      for (const std::string& gram : seen) ++with_[gram];
    }
  }
  /// Turns the counts of n-grams into tf-idf weights.
  void weigh(Grams& grams) const {
    for (auto& counts : grams.counts)
      for (auto& [gram, value] : counts) {
        const auto found = with_.find(gram);
        value *= std::log(images_ / (found == with_.end() ? 1.0 : found->second));
      }
  }

 private:
  double images_;
  std::map<std::string, double> with_;
};

double norm_of(const std::map<std::string, double>& weights) {
  double sum = 0;
  for (const auto& [gram, weight] : weights) sum += weight * weight;
  return std::sqrt(sum);
}

/// Returns the mean over n of the clipped cosine between the weighted n-grams of both texts, times a penalty for different
/// lengths.
double similarity(const Grams& caption, const Grams& reference, double sigma) {
  double sum = 0;
  for (std::size_t n = 0; n < kLongestGram; ++n) {
    const auto &ours = caption.counts[n], &theirs = reference.counts[n];
    const double norms = norm_of(ours) * norm_of(theirs);
    if (norms == 0) continue;
    for (const auto& [gram, weight] : ours)
      if (const auto found = theirs.find(gram); found != theirs.end()) sum += std::min(weight, found->second) * found->second / norms;
  }
  const double longer = caption.words - reference.words;
  return sum / kLongestGram * std::exp(-longer * longer / (2 * sigma * sigma));
}

}  // namespace

CiderScores cider_d(const std::vector<std::string>& captions, const std::vector<std::vector<std::string>>& references, double sigma) {
  TORCH_CHECK(captions.size() == references.size(), "cider_d: captions for ", captions.size(), " images, but references for ",
              references.size());
  std::vector<std::vector<Grams>> known(references.size());
  for (std::size_t i = 0; i < references.size(); ++i)
    for (const std::string& text : references[i]) known[i].push_back(grams_of(text));
  const ImageCounts counts(known);
  CiderScores out;
  for (std::size_t i = 0; i < captions.size(); ++i) {
    Grams caption = grams_of(captions[i]);
    counts.weigh(caption);
    double sum = 0;
    for (Grams& reference : known[i]) {
      counts.weigh(reference);
      sum += similarity(caption, reference, sigma);
    }
    constexpr double kScale = 10;  // as in the authors' code
    out.per_image.push_back(known[i].empty() ? 0 : kScale * sum / static_cast<double>(known[i].size()));
    out.mean += out.per_image.back() / static_cast<double>(captions.size());
  }
  return out;
}

}  // namespace tessera::metrics
