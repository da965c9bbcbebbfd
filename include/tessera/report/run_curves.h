#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <tessera/report/metric.h>
#include <tessera/report/thin_curve.h>

namespace tessera::report {

/// The curves of a run, from the rows of its metrics.jsonl and from its evaluations, in little memory however long it
/// is.
class RunCurves {
 public:
  /// A row: numbers by key, and objects of them (`terms`). What is no such row is passed over.
  void add(const nlohmann::json& row);
  void add(double step, const std::string& name, double value);

  /// Loss, its terms, learning rate, gradient norms, logit scale.
  std::vector<CurveChart> training() const;
  /// Speed, waiting and memory.
  std::vector<CurveChart> machine() const;
  /// All of whose names begin with `prefix`, under the rest of them: a chart for each part before the last point.
  std::vector<CurveChart> with_prefix(const std::string& prefix) const;
  /// Those named `prefix`TASK.METRIC: of each task its shares, in percent, and its other metrics.
  std::vector<CurveChart> evaluations(const std::string& prefix) const;
  /// The keys of all curves that have a point, in alphabetical order.
  std::vector<std::string> keys() const;
  /// One of them under another name, its values times `factor`; without points if there is none of this key.
  Curve curve(const std::string& key, const std::string& name, double factor = 1) const;
  /// The value added last; null if there is none.
  const double* last(const std::string& name) const;

 private:
  struct Line {
    std::string key, name;
    double factor = 1;
  };
  CurveChart chart(const std::string& title, const std::vector<Line>& lines) const;

  std::map<std::string, ThinCurve, NaturalOrder> curves_;
};

}  // namespace tessera::report
