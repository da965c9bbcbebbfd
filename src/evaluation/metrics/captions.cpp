#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>

#include <c10/util/Exception.h>

#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/captions.h"

namespace tessera::metrics {
namespace {

double mean_of_valid(const std::vector<double>& values) {
  double sum = 0, count = 0;
  for (const double value : values) {
    if (value == -1) continue;
    sum += value;
    ++count;
  }
  return count > 0 ? sum / count : 0.0;
}

/// Returns the share of `words` that occur in `truth`, which holds the count of each word. Returns -1 if `words` is empty.
double share_known(const std::vector<std::string>& words, std::map<std::string, std::int64_t> truth, bool clip_counts) {
  if (words.empty()) return -1;
  std::int64_t known = 0;
  for (const std::string& word : words) {
    const auto found = truth.find(word);
    if (found == truth.end() || found->second == 0) continue;
    ++known;
    if (clip_counts) --found->second;
  }
  return static_cast<double>(known) / static_cast<double>(words.size());
}

constexpr std::size_t kLongestGram = 4;

/// Counts of the n-grams of a text. counts[n - 1] maps each sequence of n words, joined by spaces, to its count.
struct Grams {
  std::array<std::map<std::string, double>, kLongestGram> counts;
  double words = 0;
};

Grams count_grams(std::string_view caption) {
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

double compute_norm(const std::map<std::string, double>& weights) {
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
    const double norms = compute_norm(ours) * compute_norm(theirs);
    if (norms == 0) continue;
    for (const auto& [gram, weight] : ours)
      if (const auto found = theirs.find(gram); found != theirs.end()) sum += std::min(weight, found->second) * found->second / norms;
  }
  const double longer = caption.words - reference.words;
  return sum / kLongestGram * std::exp(-longer * longer / (2 * sigma * sigma));
}

}  // namespace

std::vector<std::string> caption_words(std::string_view caption) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : caption) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool kept = upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || static_cast<unsigned char>(c) >= 0x80;
    if (kept) {
      word += upper ? static_cast<char>(c - 'A' + 'a') : c;
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

std::vector<std::int64_t> best_texts(const SimilarityTile& similarity, std::int64_t images, std::int64_t texts) {
  TORCH_CHECK(texts > 0 || images == 0, "best_texts: no texts");
  std::vector<std::int64_t> best;
  for_tiles(images, texts, [&](std::int64_t begin, std::int64_t end) {
    const at::Tensor scores = at::nan_to_num(similarity({begin, end}, {0, texts}).to(at::kDouble), -INFINITY, INFINITY, -INFINITY);
    const at::Tensor chosen = best_first(scores, 1).select(1, 0).to(at::kCPU).contiguous();
    best.insert(best.end(), chosen.const_data_ptr<std::int64_t>(), chosen.const_data_ptr<std::int64_t>() + chosen.numel());
  });
  return best;
}

KPrecisionScores k_precision(const std::vector<std::int64_t>& top1, const std::vector<std::string>& captions,
                             const std::vector<std::int64_t>& caption_image,
                             const std::optional<std::vector<std::string>>& lexicon, bool clip_counts) {
  const auto images = static_cast<std::int64_t>(top1.size());
  TORCH_CHECK(caption_image.size() == captions.size(), "k_precision: caption_image must be [", captions.size(), "], got [",
              caption_image.size(), "]");
  TORCH_CHECK(!captions.empty() || images == 0, "k_precision: no captions");
  std::vector<std::vector<std::string>> words(captions.size());
  std::vector<std::map<std::string, std::int64_t>> truth(top1.size());
  for (std::size_t m = 0; m < captions.size(); ++m) {
    words[m] = caption_words(captions[m]);
    const std::int64_t owner = caption_image[m];
    TORCH_CHECK(owner < images, "k_precision: caption_image must lie below ", images, ", got ", owner);
    if (owner < 0) continue;
    for (const std::string& word : words[m]) ++truth[static_cast<std::size_t>(owner)][word];
  }
  const std::set<std::string> allowed = lexicon ? std::set(lexicon->begin(), lexicon->end()) : std::set<std::string>();

  KPrecisionScores out;
  out.top1 = top1;
  for (std::size_t n = 0; n < top1.size(); ++n) {
    const std::vector<std::string>& all = words.at(static_cast<std::size_t>(top1[n]));
    std::vector<std::string> some;
    for (const std::string& word : all) {
      if (!lexicon || allowed.contains(word)) some.push_back(word);
    }
    out.per_image.push_back(share_known(all, truth[n], clip_counts));
    out.per_image_na.push_back(share_known(some, truth[n], clip_counts));
  }
  out.k_precision = mean_of_valid(out.per_image);
  out.k_precision_na = mean_of_valid(out.per_image_na);
  return out;
}

CiderScores cider_d(const std::vector<std::string>& captions, const std::vector<std::vector<std::string>>& references, double sigma) {
  TORCH_CHECK(captions.size() == references.size(), "cider_d: captions for ", captions.size(), " images, but references for ",
              references.size());
  std::vector<std::vector<Grams>> known(references.size());
  for (std::size_t i = 0; i < references.size(); ++i)
    for (const std::string& text : references[i]) known[i].push_back(count_grams(text));
  const ImageCounts counts(known);
  CiderScores out;
  for (std::size_t i = 0; i < captions.size(); ++i) {
    Grams caption = count_grams(captions[i]);
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
