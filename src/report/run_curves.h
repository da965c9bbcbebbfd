#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "src/report/natural_order.h"

namespace tessera::report {

/// The values of one quantity, for example over the steps of a run.
struct Curve {
  std::vector<std::pair<double, double>> points;  // step, value
  std::vector<std::pair<double, double>> ranges =
      {};  // for each point, the smallest and the largest of the values whose mean is the point; empty if each point is a single value
};

/// A curve of bounded size. Merges neighboring values so that there are never more than `most` groups of values. Each group has the mean,
/// the minimum and the maximum of its values.
class ThinCurve {
 public:
  explicit ThinCurve(std::size_t most = 500) : most_(most) {}

  /// Steps must not decrease. Values that are not finite are left out.
  void add(double step, double value);
  bool empty() const { return stretches_.empty(); }
  /// The value that was added last.
  const double& last() const { return last_; }
  /// Returns a curve with one point per group of values: its x is the mean step, and its y is the mean value. The curve has ranges
  /// (minimum, maximum) only if groups may have more than one value.
  Curve curve() const;

 private:
  struct Stretch {
    double steps = 0, values = 0;  // sums of the steps and of the values in a group
    double low = 0, high = 0;
    std::int64_t count = 0;
  };
  void join_pairs();

  std::size_t most_;
  std::int64_t per_stretch_ = 1;
  std::vector<Stretch> stretches_;
  double last_ = 0;
};

/// The curves of a run, made from the rows of its metrics.jsonl and its evaluations. Their memory does not grow with the length of the run.
class RunCurves {
 public:
  /// Adds the numbers of a row, including numbers inside objects (`terms`). Ignores everything else.
  void add(const nlohmann::json& row);
  void add(double step, const std::string& name, double value);
  /// Returns the curves as the pages hold them: {"steps": [[step, ...], ...], "values": {name: {"steps": index of the curve's steps, "y":
  /// [...], "low": [...], "high": [...]}}}. A curve has "low" and "high" if its points are means of several values. Numbers have six
  /// digits.
  nlohmann::json to_json() const;
  /// Returns the last value of the curve `name`, or null if there is none.
  const double* last(const std::string& name) const;

 private:
  std::map<std::string, ThinCurve, NaturalOrder> curves_;
};

/// Returns the curves of the rows in a run's metrics.jsonl; no curves if the file does not exist. Rows that are not JSON are skipped.
RunCurves read_run_curves(const std::string& run_folder);

}  // namespace tessera::report
