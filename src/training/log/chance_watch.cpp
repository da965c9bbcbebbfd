#include <algorithm>
#include <cmath>

#include "src/training/log/chance_watch.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr double kNearChance = 0.97;
constexpr std::int64_t kAveraged = 50;  // number of steps that an average covers

}  // namespace

ChanceWatch::ChanceWatch(std::map<std::string, double> levels, std::int64_t begin, ChanceHints hints)
    : levels_(std::move(levels)), begin_(begin), hints_(std::move(hints)) {}

const double* ChanceWatch::level_of(const std::string& term) const {
  auto found = levels_.find(term);
  if (found == levels_.end()) found = levels_.find(term.substr(term.find('.') + 1));
  return found != levels_.end() && found->second > 0 ? &found->second : nullptr;
}

std::optional<std::string> ChanceWatch::note(std::int64_t step,
                                             const std::vector<std::pair<std::string, double>>& terms) {
  if (said_) return std::nullopt;
  std::vector<std::string> at_chance;
  for (const auto& [name, value] : terms) {
    const double* level = level_of(name);
    if (level == nullptr || !std::isfinite(value)) continue;
    Average& average = averages_[name];
    average.steps = std::min(average.steps + 1, kAveraged);
    average.value += (value - average.value) / static_cast<double>(average.steps);
    if (average.steps == kAveraged && average.value >= kNearChance * *level) at_chance.push_back(name);
  }
  if (step < begin_ || at_chance.empty()) return std::nullopt;
  said_ = true;
  return line(step, at_chance);
}

std::string ChanceWatch::line(std::int64_t step, const std::vector<std::string>& terms) const {
  std::string what;
  for (const std::string& name : terms)
    what += concat(what.empty() ? "" : ", ", name, " ", fixed(averages_.at(name).value, 2), " (chance ",
                   fixed(*level_of(name), 2), ")");
  return concat(
      "the loss is at chance after step ", with_thousands(step), ": ", what,
      ". The model does not distinguish pairs: check the learning rate (optimizer.lr ", hints_.learning_rate,
      "), whether captions match their images (tessera-data inspect shows some), and what is trained ",
      hints_.frozen.empty() ? "(start.weights, parameters)"
                            : concat("(parameters.frozen: ", join_names(hints_.frozen), ")"));
}

}  // namespace tessera
