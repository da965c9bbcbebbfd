#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json_fwd.hpp>

#include <tessera/probe/case.h>
#include <tessera/probe/runner.h>

namespace tessera::probe {

/// One compared tensor. It agrees if `problem` is empty and error <= bound.
struct Row {
  std::string tensor;
  double error = 0;     // max|ours - theirs|
  double bound = 0;     // rtol * (1 + max|theirs|); 0 for whole numbers and bools
  std::string problem;  // "missing", "NaN where the reference has none", ...

  bool agrees() const { return problem.empty() && error <= bound; }
};

struct CaseReport {
  std::string path;
  std::string module;
  std::string note;
  std::vector<Row> rows;
  std::string failure;  // the module threw, or parameters do not match
  std::string skipped;  // why the case was not run

  bool agrees() const;
};

/// Compares by the rule of the reference cases: whole numbers and bools must be equal, others agree within rtol; a NaN
/// or an infinity must stand where the reference has one and nowhere else. `ours` undefined stands for zeros (a
/// gradient that does not exist).
Row compare(const std::string& name, const at::Tensor& ours, const at::Tensor& theirs, double rtol);

/// Runs the module of one case, differentiates `loss` or the sum of cotangent * output, and compares outputs and
/// gradients. Throws UserError for an unknown module (listing the known ones) and for settings that the module refuses.
CaseReport run_case(const Case& reference, const Runners& runners, const RunOptions& options = {});

/// load_case and run_case; a `.jsonl` file goes to its lines runner.
CaseReport run_file(const std::string& path, const Runners& runners, const RunOptions& options = {});

/// A table of one case: tensor, worst error, its share of the bound. `brief` leaves out the rows that agree.
std::string format_table(const CaseReport& report, bool brief = false);
nlohmann::json to_json(const CaseReport& report);

}  // namespace tessera::probe
