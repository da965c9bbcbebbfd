#include <map>
#include <set>

#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/k_precision.h"

namespace tessera::metrics {
namespace {

double mean_of_valid(const std::vector<double>& values, std::int64_t& count) {
  double sum = 0;
  count = 0;
  for (const double value : values) {
    if (value == -1) continue;
    sum += value;
    ++count;
  }
  return count > 0 ? sum / static_cast<double>(count) : 0.0;
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

}  // namespace

std::vector<std::string> caption_words(std::string_view caption) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : caption) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool kept =
        upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || static_cast<unsigned char>(c) >= 0x80;
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
  out.k_precision = mean_of_valid(out.per_image, out.count);
  out.k_precision_na = mean_of_valid(out.per_image_na, out.count_na);
  return out;
}

KPrecisionScores k_precision(const at::Tensor& scores, const std::vector<std::string>& captions,
                             const std::vector<std::int64_t>& caption_image,
                             const std::optional<std::vector<std::string>>& lexicon, bool clip_counts) {
  TORCH_CHECK(scores.dim() == 2 && scores.size(1) == static_cast<std::int64_t>(captions.size()),
              "k_precision: scores must be [N, ", captions.size(), "], got ", scores.sizes());
  const auto all = [&](RowRange images, RowRange) { return scores.slice(0, images.begin, images.end); };
  return k_precision(best_texts(all, scores.size(0), scores.size(1)), captions, caption_image, lexicon, clip_counts);
}

}  // namespace tessera::metrics
