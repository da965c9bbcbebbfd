#include "kernels/residual_norm/residual_norm.h"

#include "kernels/argument_check.h"

namespace tessera::kernels {
namespace {

ArgumentCheck check_problem(const ResidualNormProblem& problem) {
  ArgumentCheck found("residual_norm");
  found.at_least("rows", 0, problem.rows).at_least("width", 1, problem.width).at_most("width", kMostNormWidth, problem.width);
  found.at_least("rows_per_factor", 1, problem.rows_per_factor);
  const bool all_float = problem.stream == DataType::kFloat32 && problem.output == DataType::kFloat32;
  found.require(problem.update == DataType::kBfloat16 || all_float, "update", " must be bfloat16 if the stream or the output is");
  return found;
}

}  // namespace

Status check(const ResidualNormForward& arguments) {
  ArgumentCheck found = check_problem(arguments.problem);
  if (!found.ok() || arguments.problem.rows == 0) return found.status();
  found.present("x", arguments.x);
  if (arguments.update != nullptr) found.present("sum", arguments.sum);
  if (arguments.problem.weight == nullptr) return found.status();
  found.present("bias", arguments.bias).present("output", arguments.output);
  return found.present("mean", arguments.mean).present("rstd", arguments.rstd).status();
}

Status check(const ResidualNormBackward& arguments) {
  ArgumentCheck found = check_problem(arguments.problem);
  if (!found.ok() || arguments.problem.rows == 0) return found.status();
  found.present("workspace", arguments.workspace);
  if (arguments.grad_column_scale != nullptr) found.present("update", arguments.update);
  if (arguments.problem.weight == nullptr) return found.present("grad_sum", arguments.grad_sum).status();
  found.present("sum", arguments.sum).present("mean", arguments.mean).present("rstd", arguments.rstd);
  return found.present("grad_output", arguments.grad_output).status();
}

}  // namespace tessera::kernels
