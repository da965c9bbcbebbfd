#include "kernels/activation/activation.h"

#include "kernels/argument_check.h"

namespace tessera::kernels {
namespace {

ArgumentCheck check_problem(const ActivationProblem& problem) {
  ArgumentCheck found("activation");
  found.at_least("rows", 0, problem.rows).at_least("width", 1, problem.width);
  return found;
}

}  // namespace

bool find_activation(const std::string& name, Activation& found) {
  constexpr const char* kNames[] = {"gelu", "gelu_tanh", "quick_gelu", "silu"};
  for (int i = 0; i < 4; ++i) {
    if (name != kNames[i]) continue;
    found = static_cast<Activation>(i);
    return true;
  }
  return false;
}

Status check(const ActivationForward& arguments) {
  ArgumentCheck found = check_problem(arguments.problem);
  if (!found.ok() || arguments.problem.rows == 0) return found.status();
  return found.present("x", arguments.x).present("y", arguments.y).status();
}

Status check(const ActivationBackward& arguments) {
  ArgumentCheck found = check_problem(arguments.problem);
  if (!found.ok() || arguments.problem.rows == 0) return found.status();
  found.present("x", arguments.x).present("grad_y", arguments.grad_y).present("grad_x", arguments.grad_x);
  if (arguments.factor != nullptr) found.present("grad_factor", arguments.grad_factor);
  found.require(arguments.factor != nullptr || arguments.grad_factor_sum == nullptr, "grad_factor_sum", " needs a factor");
  if (arguments.grad_x_sum != nullptr || arguments.grad_factor_sum != nullptr) found.present("workspace", arguments.workspace);
  return found.status();
}

}  // namespace tessera::kernels
