#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

/// What a run that learns nothing should look at.
struct ChanceHints {
  double learning_rate = 0;         // the schedule's peak
  std::vector<std::string> frozen;  // parameters.frozen
};

/// Says, once, that terms of the loss stay where nothing is learned (Objective::chance_levels), or have come there.
class ChanceWatch {
 public:
  /// begin: the first step that is judged.
  ChanceWatch(std::map<std::string, double> levels, std::int64_t begin, ChanceHints hints);

  /// Adds a step's terms; those of a source that has batches of its own begin with its label. One line when terms are
  /// within 3% of chance, or above it, on the average of the last fifty steps or so.
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
