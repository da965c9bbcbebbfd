#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "src/report/metric.h"
#include "src/report/thin_curve.h"

namespace tessera::report {

/// The curves of a run, made from the rows of its metrics.jsonl and its evaluations. Their memory does not grow with the length of the run.
class RunCurves {
 public:
  /// Adds the numbers of a row, including numbers inside objects (`terms`). Ignores everything else.
  void add(const nlohmann::json& row);
  void add(double step, const std::string& name, double value);
  /// Sets the steps that all charts mark, because settings changed there.
  void set_marks(std::vector<double> steps) { marks_ = std::move(steps); }
  /// Sets the loss of a model that guesses, for terms of the loss (Objective::chance_levels). Charts of these terms show it.
  void set_chance(std::map<std::string, double> levels) { chance_ = std::move(levels); }

  /// Returns charts of loss, its terms, learning rate, gradient norms and logit scale.
  std::vector<CurveChart> training() const;
  /// Returns charts of speed, waiting and memory.
  std::vector<CurveChart> machine() const;
  /// Returns charts of all curves whose names begin with `prefix`; the charts show the names without the prefix. Curves whose names are the
  /// same before the last "." share a chart.
  std::vector<CurveChart> with_prefix(const std::string& prefix) const;
  /// Returns charts of the curves named `prefix`TASK.METRIC. Each task has one chart for its metrics that are shares, in percent, and one
  /// for its other metrics.
  std::vector<CurveChart> evaluations(const std::string& prefix) const;
  /// Returns the keys of all curves that have a point, in alphabetical order.
  std::vector<std::string> keys() const;
  /// Returns the curve of this key under another name, with its values multiplied by `factor`. The result has no points if there is no such
  /// curve.
  Curve curve(const std::string& key, const std::string& name, double factor = 1) const;
  /// Returns the last value of the curve `name`, or null if there is none.
  const double* last(const std::string& name) const;

 private:
  struct Line {
    std::string key, name;
    double factor = 1;
  };
  CurveChart chart(const std::string& title, const std::vector<Line>& lines) const;
  /// Adds the levels of chance of these terms to the chart. If `common` is true, adds nothing unless all terms have the same level.
  void add_chance(CurveChart& chart, const std::vector<Line>& terms, bool common) const;

  std::map<std::string, ThinCurve, NaturalOrder> curves_;
  std::vector<double> marks_;
  std::map<std::string, double> chance_;
};

}  // namespace tessera::report
