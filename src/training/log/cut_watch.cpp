#include "src/training/log/cut_watch.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr std::int64_t kFirstSteps = 10;  // after how many steps of a session the early warning comes
constexpr double kMuch = 0.25;

double share_of(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

// Formats a share, as in "12.3%". A share below a tenth of a percent becomes "less than 0.1%", not 0.
std::string percent_text(double share) {
  return share < 0.001 ? "less than 0.1%" : fixed(100 * share, 1) + "%";
}

}  // namespace

std::vector<std::string> CutWatch::note(const std::map<std::string, TextCuts>& cuts) {
  std::vector<std::string> lines;
  if (++steps_ != kFirstSteps) return lines;
  for (const auto& [view, total] : cuts)
    if (const double tokens = share_of(total.cut_tokens, total.tokens); tokens >= kMuch)
      lines.push_back(concat("the tokenizer's context of ", context_, " cuts off ", percent_text(tokens), " of the tokens of ", view,
                             ": set a larger tokenizer.context_length, or shorten the texts"));
  return lines;
}

std::vector<std::string> CutWatch::epoch_over(std::int64_t epoch, const std::map<std::string, TextCuts>& cuts) {
  std::vector<std::string> lines;
  shares_.clear();
  for (const auto& [view, total] : cuts) {
    const TextCuts now = total - std::exchange(before_[view], total);
    if (now.cut_tokens <= 0) continue;
    const double tokens = share_of(now.cut_tokens, now.tokens), texts = share_of(now.cut_texts, now.texts);
    shares_.emplace_back("tokens." + view, tokens);
    shares_.emplace_back("texts." + view, texts);
    lines.push_back(concat("epoch ", epoch, ": the tokenizer's context of ", context_, " cut off ", percent_text(tokens),
                           " of the tokens of ", view, ", out of ", percent_text(texts), " of its texts"));
  }
  return lines;
}

}  // namespace tessera
