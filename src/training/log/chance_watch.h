#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

/// Settings to mention in the warning about a run that learns nothing.
struct ChanceHints {
  double learning_rate = 0;         // the peak learning rate of the schedule
  std::vector<std::string> frozen;  // the setting parameters.frozen
};

/// Warns once if terms of the loss stay at chance level (Objective::chance_levels) or return to it.
class ChanceWatch {
 public:
  /// `begin` is the first step to check.
  ChanceWatch(std::map<std::string, double> levels, std::int64_t begin, ChanceHints hints);

  /// Adds a step's terms. If a source has separate batches, the names of its terms begin with its label. Returns a warning if, on average
  /// over about the last fifty steps, a term is at least 97% of its chance level.
  std::optional<std::string> note(std::int64_t step, const std::vector<std::pair<std::string, double>>& terms);

 private:
  struct Average {
    double value = 0;
    std::int64_t steps = 0;
  };
  const double* level_of(const std::string& term) const;
  std::string line(std::int64_t step, const std::vector<std::string>& terms) const;

  std::map<std::string, double> levels_;
  std::int64_t begin_;
  ChanceHints hints_;
  std::map<std::string, Average> averages_;
  bool said_ = false;
};

}  // namespace tessera
