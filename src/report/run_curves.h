#pragma once

#include <map>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "src/report/natural_order.h"
#include "src/report/thin_curve.h"

namespace tessera::report {

/// The curves of a run, made from the rows of its metrics.jsonl and its evaluations. Their memory does not grow with the length of the run.
class RunCurves {
 public:
  /// Adds the numbers of a row, including numbers inside objects (`terms`). Ignores everything else.
  void add(const nlohmann::json& row);
  void add(double step, const std::string& name, double value);
  /// Returns the curves as the pages hold them: {"steps": [[step, ...], ...], "values": {name: {"steps": index of the curve's steps, "y":
  /// [...], "low": [...], "high": [...]}}}. A curve has "low" and "high" if its points are means of several values. Numbers have six digits.
  nlohmann::json to_json() const;
  /// Returns the last value of the curve `name`, or null if there is none.
  const double* last(const std::string& name) const;

 private:
  std::map<std::string, ThinCurve, NaturalOrder> curves_;
};

/// Returns the curves of the rows in a run's metrics.jsonl; no curves if the file does not exist. Rows that are not JSON are skipped.
RunCurves read_run_curves(const std::string& run_folder);

}  // namespace tessera::report
