#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/report/run_curves.h"
#include <tessera/report/task_result.h>

namespace tessera::report {

/// What a report says about the model and its run.
struct ReportHead {
  std::string title;                                            // the run's or file's name
  std::vector<std::pair<std::string, std::string>> facts = {};  // names and values, such as {"Parameters", "1.2 M"}
  RunCurves curves = {};                                        // the curves of the training run, if there was one
  // the settings "source" and "train" of the whole evaluation, which the report shows for tasks that have no such settings of their own
  std::vector<std::pair<std::string, config::Node>> data = {};
};

/// Returns the report of an evaluation as a page.
std::string evaluation_page(const ReportHead& head, const std::vector<TaskResult>& results, const std::vector<TaskFailure>& failures = {});

}  // namespace tessera::report
