#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <tessera/data/loading/loader.h>

namespace tessera {

/// Warns early in a session if much of the texts is cut off. Reports once per epoch what share of the texts was truncated to the
/// tokenizer's context length, and what share of their tokens was lost. If a run resumes in the middle of an epoch, only the epoch's
/// samples after that point count. With several processes, each process counts only its own samples.
class CutWatch {
 public:
  /// `context` is the tokenizer's context length.
  explicit CutWatch(std::int64_t context) : context_(context) {}

  /// Must be called at the end of each epoch and of the run. `cuts` is LoaderStatistics::cuts, counted from the start of the
  /// session. Returns one line for each view that lost tokens in the epoch.
  std::vector<std::string> epoch_over(std::int64_t epoch, const std::map<std::string, TextCuts>& cuts);
  /// Must be called after each step. After the first steps of the session, returns a warning for each view that lost much of its tokens.
  std::vector<std::string> note(const std::map<std::string, TextCuts>& cuts);
  /// Returns what was cut off at the context length in the last finished epoch, as columns for a row of the log. A view that lost tokens
  /// has two columns: the share of its tokens that were cut off ("tokens.VIEW"), and the share of its texts that lost tokens
  /// ("texts.VIEW"). A second call returns nothing until another epoch has ended.
  std::vector<std::pair<std::string, double>> take_shares() { return std::exchange(shares_, {}); }

 private:
  std::int64_t context_, steps_ = 0;
  std::map<std::string, TextCuts> before_;
  std::vector<std::pair<std::string, double>> shares_;
};

}  // namespace tessera
