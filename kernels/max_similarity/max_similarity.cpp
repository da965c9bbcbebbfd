#include "kernels/max_similarity/max_similarity.h"

#include "kernels/argument_check.h"
#include "kernels/max_similarity/configurations.h"

namespace tessera::kernels {
namespace {

ArgumentCheck check_problem(const MaxSimilarityProblem& problem) {
  constexpr std::int64_t kMostRows = MaxSimilarityProblem::kMostRows;
  ArgumentCheck found("max_similarity");
  found.at_least("images", 0, problem.images);
  found.at_least("patches", 1, problem.patches).at_most("patches", kMostRows, problem.patches);
  found.at_least("texts", 0, problem.texts);
  found.at_least("tokens", 0, problem.tokens).at_most("tokens", kMostRows, problem.tokens);
  found.at_least("width", 1, problem.width);
  return found;
}

/// Returns true if there are no images or no texts. There are then no pairs, and nothing is read.
bool is_empty(const MaxSimilarityProblem& problem) {
  return problem.images == 0 || problem.texts == 0;
}

template <class Arguments>
void check_inputs(const Arguments& arguments, ArgumentCheck& found) {
  found.present("patches", arguments.patches).present("patch_keep", arguments.patch_keep);
  found.present("best_token", arguments.best_token);
  if (arguments.problem.tokens == 0) return;
  found.present("tokens", arguments.tokens).present("token_keep", arguments.token_keep);
  found.present("best_patch", arguments.best_patch);
}

}  // namespace

std::vector<std::string> max_similarity_configurations(Pass pass) {
  if (pass == Pass::kBackward) return {std::begin(kMaxSimilarityBackwardConfigurations), std::end(kMaxSimilarityBackwardConfigurations)};
  std::vector<std::string> names;
  for (const MaxSimilarityConfiguration& configuration : kMaxSimilarityConfigurations) names.emplace_back(configuration.name);
  return names;
}

Status check(const MaxSimilarityForward& arguments) {
  ArgumentCheck found = check_problem(arguments.problem);
  if (!found.ok() || is_empty(arguments.problem)) return found.status();
  check_inputs(arguments, found);
  found.present("i2t", arguments.i2t).present("t2i", arguments.t2i);
  return found.status();
}

Status check(const MaxSimilarityBackward& arguments) {
  ArgumentCheck found = check_problem(arguments.problem);
  if (!found.ok() || is_empty(arguments.problem)) return found.status();
  check_inputs(arguments, found);
  found.present("grad_i2t", arguments.grad_i2t).present("grad_t2i", arguments.grad_t2i);
  return found.status();
}

}  // namespace tessera::kernels
