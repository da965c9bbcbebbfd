#include "kernels/token_max_projection/token_max_projection.h"

#include "kernels/argument_check.h"
#include "kernels/token_max_projection/configurations.h"

namespace tessera::kernels {
namespace {

ArgumentCheck check_problem(const TokenMaxProjectionProblem& problem) {
  ArgumentCheck found("token_max_projection");
  found.at_least("batch", 0, problem.batch).at_least("positions", 1, problem.positions);
  found.at_least("vocabulary", 1, problem.vocabulary).at_least("width", 1, problem.width);
  return found;
}

}  // namespace

std::vector<std::string> token_max_projection_configurations() {
  std::vector<std::string> names;
  for (const TokenMaxProjectionConfiguration& configuration : kTokenMaxProjectionConfigurations) names.emplace_back(configuration.name);
  return names;
}

Status check(const TokenMaxProjectionForward& arguments) {
  ArgumentCheck found = check_problem(arguments.problem);
  if (!found.ok() || arguments.problem.batch == 0) return found.status();
  found.present("tokens", arguments.tokens).present("table", arguments.table).present("bias", arguments.bias);
  found.present("encoding", arguments.encoding).present("argmax", arguments.argmax);
  return found.status();
}

Status check(const TokenMaxProjectionBackward& arguments) {
  ArgumentCheck found = check_problem(arguments.problem);
  if (!found.ok() || arguments.problem.batch == 0) return found.status();
  found.present("tokens", arguments.tokens).present("table", arguments.table);
  found.present("argmax", arguments.argmax).present("weight", arguments.weight);
  return found.status();
}

}  // namespace tessera::kernels
