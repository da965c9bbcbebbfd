#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::report {

/// What single samples contribute to a metric that is a mean of ratios: of each group the sum of its entries' parts over
/// that of their wholes, then the mean over the groups with a whole. A mean over samples has one group and wholes of 1; a
/// mean of classes' IoUs has a group for each class, intersections and unions.
struct Outcomes {
  struct Entry {
    std::int64_t sample = 0;  // from 0
    double part = 0;
    double whole = 1;
    std::int64_t group = 0;
  };
  std::string metric;
  std::vector<Entry> entries;
};

/// Outcomes of a metric that is the mean of these, one a sample; those below 0 count nowhere.
Outcomes mean_outcomes(const std::string& metric, const std::vector<double>& values);

/// The metric itself; NaN without a whole.
double value_of(const Outcomes& outcomes);

struct Interval {
  double low = 0, high = 0;
};

constexpr std::int64_t kResamples = 1000;

/// The metrics of resamples with replacement of 0 .. samples - 1 (Efron 1979): out[metric][resample], NaN where a
/// resample has no whole. They follow from `samples` and `seed` alone, so that two models' values on the same samples are
/// pairs. Throws std::out_of_range for an entry of another sample.
std::vector<std::vector<double>> bootstrap_values(const std::vector<Outcomes>& metrics, std::int64_t samples,
                                                  std::int64_t resamples = kResamples, std::uint64_t seed = 0);

/// The middle 95 % of the values that are numbers, by percentiles with linear interpolation; none of fewer than two.
std::optional<Interval> middle(std::vector<double> values);

/// middle() of bootstrap_values(); none of fewer than two samples.
std::optional<Interval> bootstrap_interval(const Outcomes& outcomes, std::int64_t samples,
                                           std::int64_t resamples = kResamples, std::uint64_t seed = 0);

/// How much greater the first's metric is than the second's on the same samples, by their bootstrap_values() resample
/// by resample.
std::optional<Interval> difference_interval(const std::vector<double>& first, const std::vector<double>& second);

}  // namespace tessera::report
