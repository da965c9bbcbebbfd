#include <algorithm>
#include <cmath>
#include <limits>

#include <tessera/base/random.h>
#include <tessera/report/bootstrap.h>

namespace tessera::report {
namespace {

/// Draws a resample. Returns how often each sample was drawn.
std::vector<double> drawn_counts(Random& random, std::int64_t samples) {
  std::vector<double> counts(static_cast<std::size_t>(samples), 0);
  for (std::int64_t i = 0; i < samples; ++i) ++counts[static_cast<std::size_t>(random.below(samples))];
  return counts;
}

/// Computes the sums of one metric by group. The buffers are reused for each resample.
class GroupSums {
 public:
  explicit GroupSums(const Outcomes& outcomes) : outcomes_(outcomes) {
    std::int64_t groups = 0;
    for (const auto& entry : outcomes.entries) groups = std::max(groups, entry.group + 1);
    parts_.resize(static_cast<std::size_t>(groups));
    wholes_.resize(static_cast<std::size_t>(groups));
  }

  /// Returns the metric of a resample, in which sample i occurs counts[i] times; if `counts` is empty, each sample occurs once.
  double value(const std::vector<double>& counts) {
    std::fill(parts_.begin(), parts_.end(), 0);
    std::fill(wholes_.begin(), wholes_.end(), 0);
    for (const Outcomes::Entry& entry : outcomes_.entries) {
      const double count = counts.empty() ? 1 : counts.at(static_cast<std::size_t>(entry.sample));
      parts_[static_cast<std::size_t>(entry.group)] += count * entry.part;
      wholes_[static_cast<std::size_t>(entry.group)] += count * entry.whole;
    }
    double sum = 0, groups = 0;
    for (std::size_t g = 0; g < parts_.size(); ++g) {
      if (wholes_[g] <= 0) continue;
      sum += parts_[g] / wholes_[g];
      ++groups;
    }
    return groups > 0 ? sum / groups : std::numeric_limits<double>::quiet_NaN();
  }

 private:
  const Outcomes& outcomes_;
  std::vector<double> parts_, wholes_;
};

/// Returns a percentile: the value below which this share of the sorted values lies.
double percentile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

Outcomes mean_outcomes(const std::string& metric, const std::vector<double>& values) {
  Outcomes out{metric, {}};
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] >= 0) out.entries.push_back({static_cast<std::int64_t>(i), values[i]});
  return out;
}

double value_of(const Outcomes& outcomes) {
  return GroupSums(outcomes).value({});
}

std::vector<std::vector<double>> bootstrap_values(const std::vector<Outcomes>& metrics, std::int64_t samples,
                                                  std::int64_t resamples, std::uint64_t seed) {
  Random random(seed, Purpose::bootstrap, {static_cast<std::uint64_t>(samples)});
  std::vector<GroupSums> sums(metrics.begin(), metrics.end());
  std::vector<std::vector<double>> out(metrics.size());
  for (std::int64_t i = 0; i < resamples; ++i) {
    const std::vector<double> counts = drawn_counts(random, samples);
    for (std::size_t m = 0; m < sums.size(); ++m) out[m].push_back(sums[m].value(counts));
  }
  return out;
}

std::optional<Interval> middle(std::vector<double> values) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  if (values.size() < 2) return std::nullopt;
  std::sort(values.begin(), values.end());
  return Interval{percentile(values, 0.025), percentile(values, 0.975)};
}

std::optional<Interval> difference_interval(const std::vector<double>& first, const std::vector<double>& second) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < std::min(first.size(), second.size()); ++i) differences.push_back(first[i] - second[i]);
  return middle(std::move(differences));
}

}  // namespace tessera::report
