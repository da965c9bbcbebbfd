#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <tessera/data/loading/loader.h>

namespace tessera {

/// Tells once per epoch which share of the texts and of their tokens the tokenizer's context cut off. Of a run that goes on in
/// the middle of an epoch it knows the samples since then, of several processes its own.
class CutWatch {
 public:
  /// context: the tokenizer's, in tokens.
  explicit CutWatch(std::int64_t context) : context_(context) {}

  /// The epoch is over, or the run: `cuts` are LoaderStatistics::cuts since the session began. One line for each view that
  /// lost tokens in it.
  std::vector<std::string> epoch_over(std::int64_t epoch, const std::map<std::string, TextCuts>& cuts);
  /// The shares of that epoch, for a row: {"tokens.VIEW", share}, {"texts.VIEW", share} of views that lost tokens.
  /// Gives them once.
  std::vector<std::pair<std::string, double>> take_shares() { return std::exchange(shares_, {}); }

 private:
  std::int64_t context_;
  std::map<std::string, TextCuts> before_;
  std::vector<std::pair<std::string, double>> shares_;
};

}  // namespace tessera
