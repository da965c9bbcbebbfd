#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/report/task_result.h>

namespace tessera {

/// One value over the steps of a run.
struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  // step, value
  std::vector<std::pair<double, double>> ranges =
      {};  // least and greatest of the values that each point is the mean of
  std::optional<std::int64_t> color = {};  // of the palette; without, that of its place in the chart
};

/// A picture with one or more curves over the same steps.
struct CurveChart {
  std::string title;
  std::vector<Curve> curves;
  std::string x_name = "step";
  std::string unit = {};  // behind the values: "%"
};

/// What stands at the head of a report.
struct ReportHead {
  std::string title;                                       // the run's or file's name
  std::vector<std::pair<std::string, std::string>> facts;  // "Parameters": "1.2 M"
  std::vector<CurveChart> charts;                          // of the training run; may be empty
  std::vector<std::pair<std::string, config::Node>> data = {};  // "source", "train": of tasks whose settings name none
};

/// One self-contained HTML page: no script, no external file, pictures inline; light and dark.
std::string html_report(const ReportHead& head, const std::vector<TaskResult>& results,
                        const std::vector<TaskFailure>& failures = {});

/// The training curves in a run's metrics.jsonl (loss, its terms, learning rate, gradient norm; rows that are no JSON
/// are passed over). Empty when there is no such file.
std::vector<CurveChart> read_run_curves(const std::string& run_folder);

}  // namespace tessera
