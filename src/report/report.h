#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/report/task_result.h>

namespace tessera {

/// The values of one quantity over the steps of a run.
struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  // step, value
  std::vector<std::pair<double, double>> ranges =
      {};  // for each point, the smallest and the largest of the values whose mean is the point; empty if each point is a single value
  std::optional<std::int64_t> color = {};  // index in the palette; by default, the curve's index in the chart
};

/// A chart of one or more curves over the same steps.
struct CurveChart {
  std::string title;
  std::vector<Curve> curves;
  std::string x_name = "step";
  std::string unit = {};  // written after the values, such as "%"
  std::vector<double> marks = {};  // steps at which settings of the run changed; a dashed line shows each
};

/// The head of a report.
struct ReportHead {
  std::string title;                                       // the run's or file's name
  std::vector<std::pair<std::string, std::string>> facts;  // names and values, such as {"Parameters", "1.2 M"}
  std::vector<CurveChart> charts;                          // curves of the training run; may be empty
  // the settings "source" and "train" of the whole evaluation, which the report shows for tasks that have no such settings of their own
  std::vector<std::pair<std::string, config::Node>> data = {};
};

/// Returns a self-contained HTML page for light and dark mode, without scripts or external files; images are inline.
std::string html_report(const ReportHead& head, const std::vector<TaskResult>& results,
                        const std::vector<TaskFailure>& failures = {});

/// Returns the training curves in a run's metrics.jsonl (loss, its terms, learning rate, gradient norm). Rows that are not JSON are
/// skipped. Returns no charts if the file does not exist.
std::vector<CurveChart> read_run_curves(const std::string& run_folder);

}  // namespace tessera
