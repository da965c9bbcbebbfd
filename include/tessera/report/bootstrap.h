#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::report {

/// The contributions of single samples to a metric that is a mean of ratios. Each entry adds its `part` and its `whole` to the sums of its
/// group. A group's ratio is its sum of parts divided by its sum of wholes; the metric is the mean of these ratios over the groups whose
/// wholes sum to more than 0. For a mean over samples, there is one group, and each whole is 1. For a mean IoU over classes, there is one
/// group per class; the parts are intersections, and the wholes are unions.
struct Outcomes {
  struct Entry {
    std::int64_t sample = 0;  // index of the sample, from 0
    double part = 0;
    double whole = 1;
    std::int64_t group = 0;
  };
  std::string metric;
  std::vector<Entry> entries;
};

/// Returns the outcomes of a metric that is the mean of `values`. There is one value per sample; values below 0 are left out.
Outcomes mean_outcomes(const std::string& metric, const std::vector<double>& values);

/// Returns the metric's value over all samples, each taken once; NaN if Entry::whole sums to 0 in every group.
double value_of(const Outcomes& outcomes);

struct Interval {
  double low = 0, high = 0;
};

constexpr std::int64_t kResamples = 1000;

/// Draws bootstrap resamples (Efron 1979) of the samples 0 .. samples - 1. Returns the value of each metric on each resample as
/// out[metric][resample]. A value is NaN if Entry::whole, summed over the resample, is 0 in every group. The resamples depend only on
/// `samples` and `seed`, so the values of two models on the same samples are paired. Throws std::out_of_range if an entry's sample is not
/// below `samples`.
std::vector<std::vector<double>> bootstrap_values(const std::vector<Outcomes>& metrics, std::int64_t samples,
                                                  std::int64_t resamples = kResamples, std::uint64_t seed = 0);

/// Returns the interval that contains the middle 95 % of the values, from percentiles with linear interpolation. Ignores NaN. Returns
/// nothing if fewer than two values are left.
std::optional<Interval> middle(std::vector<double> values);

/// Returns the 95 % interval of the difference first - second between two models on the same samples. `first` and `second` are the models'
/// bootstrap_values() of one metric, paired by resample.
std::optional<Interval> difference_interval(const std::vector<double>& first, const std::vector<double>& second);

}  // namespace tessera::report
