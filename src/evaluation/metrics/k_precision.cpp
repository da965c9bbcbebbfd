#include <map>
#include <set>

#include "src/evaluation/metrics/cosine.h"
#include <tessera/evaluation/metrics/k_precision.h>

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

/// Share of the words that occur among `truth` (word -> how often); -1 for no words.
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

KPrecisionScores k_precision(const at::Tensor& scores, const std::vector<std::string>& captions,
                             const std::vector<std::int64_t>& caption_image,
                             const std::optional<std::vector<std::string>>& lexicon, bool clip_counts) {
  const auto count = static_cast<std::int64_t>(captions.size());
  TORCH_CHECK(scores.dim() == 2 && scores.size(1) == count && caption_image.size() == captions.size(),
              "k_precision: scores must be [N, ", count, "] and caption_image [", count, "], got ", scores.sizes(),
              " and [", caption_image.size(), "]");
  TORCH_CHECK(count > 0 || scores.size(0) == 0, "k_precision: no captions");
  const std::int64_t images = scores.size(0);
  std::vector<std::vector<std::string>> words(captions.size());
  std::vector<std::map<std::string, std::int64_t>> truth(static_cast<std::size_t>(images));
  for (std::size_t m = 0; m < captions.size(); ++m) {
    words[m] = caption_words(captions[m]);
    const std::int64_t owner = caption_image[m];
    TORCH_CHECK(owner < images, "k_precision: caption_image must lie below ", images, ", got ", owner);
    if (owner < 0) continue;
    for (const std::string& word : words[m]) ++truth[static_cast<std::size_t>(owner)][word];
  }
  const std::set<std::string> allowed = lexicon ? std::set(lexicon->begin(), lexicon->end()) : std::set<std::string>();

  KPrecisionScores out;
  if (images > 0) {
    const at::Tensor best = best_first(at::nan_to_num(scores.to(at::kDouble), -INFINITY, INFINITY, -INFINITY), 1);
    const at::Tensor chosen = best.select(1, 0).to(at::kCPU).contiguous();
    out.top1.assign(chosen.const_data_ptr<std::int64_t>(), chosen.const_data_ptr<std::int64_t>() + images);
  }
  for (std::size_t n = 0; n < out.top1.size(); ++n) {
    const std::vector<std::string>& all = words[static_cast<std::size_t>(out.top1[n])];
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

}  // namespace tessera::metrics
