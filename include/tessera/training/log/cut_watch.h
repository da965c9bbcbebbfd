#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <tessera/data/loading/loader.h>

namespace tessera {

/// Reports once per epoch what share of the texts was truncated to the tokenizer's context, and what share of their tokens was lost.
/// If a run resumes in the middle of an epoch, it counts only the samples since then; with several processes, only its own.
class CutWatch {
 public:
  /// context: the tokenizer's context length.
  explicit CutWatch(std::int64_t context) : context_(context) {}

  /// Call at the end of each epoch and of the run; `cuts` are LoaderStatistics::cuts since the session began. Returns one line for
  /// each view that lost tokens in the epoch.
  std::vector<std::string> epoch_over(std::int64_t epoch, const std::map<std::string, TextCuts>& cuts);
  /// Returns, once, the shares of that epoch for a row: {"tokens.VIEW", share}, {"texts.VIEW", share} for views that lost tokens.
  std::vector<std::pair<std::string, double>> take_shares() { return std::exchange(shares_, {}); }

 private:
  std::int64_t context_;
  std::map<std::string, TextCuts> before_;
  std::vector<std::pair<std::string, double>> shares_;
};

}  // namespace tessera
