#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json_fwd.hpp>

#include "tests/reference/case.h"
#include "tests/reference/runner.h"

namespace tessera::probe {

/// The result of comparing one tensor with its reference. The tensors agree if `problem` is empty and error <= bound.
struct Row {
  std::string tensor;
  double error = 0;     // max|ours - theirs|
  double bound = 0;     // rtol * (1 + max|theirs|); 0 for whole numbers and bools
  std::string problem;  // "missing", "NaN where the reference has none", ...; empty if there is no problem

  bool agrees() const { return problem.empty() && error <= bound; }
};

struct CaseReport {
  std::string path;
  std::string module;
  std::string note;
  std::vector<Row> rows;
  std::string failure;  // why the case failed: the module threw, or its parameters do not match the case's
  std::string skipped;  // why the case was not run

  bool agrees() const;
};

/// Compares two tensors by the rule of the reference cases: whole numbers and bools must be equal, other numbers must agree within rtol,
/// and NaNs and infinities must be in the same places. An undefined `ours` represents a gradient that does not exist, and is compared as
/// zeros.
Row compare(const std::string& name, const at::Tensor& ours, const at::Tensor& theirs, double rtol);

/// Runs the module of a case and differentiates a scalar: the sum of cotangent * output over all outputs that have a cotangent, or the
/// output `loss` if the case has no cotangents. Compares outputs and gradients with those in the case. Throws UserError for an unknown
/// module (listing the known ones) and for settings that the module rejects.
CaseReport run_case(const Case& reference, const Runners& runners, const RunOptions& options = {});

/// Runs the cases of one file. A `.jsonl` file is passed to the lines runner; any other file holds a single case, which is passed to
/// load_case() and run_case().
CaseReport run_file(const std::string& path, const Runners& runners, const RunOptions& options = {});

/// Returns a table of one case. Its columns are the tensor's name, the worst error, the bound, and the error as a share of the bound. With
/// `brief`, rows that agree are left out.
std::string format_table(const CaseReport& report, bool brief = false);
nlohmann::json to_json(const CaseReport& report);

}  // namespace tessera::probe
