#include "kernels/attention/attention.h"

#include "kernels/argument_check.h"
#include "kernels/attention/configurations.h"

namespace tessera::kernels {
namespace {

ArgumentCheck check_problem(const AttentionProblem& problem, Pass pass) {
  ArgumentCheck found("attention");
  found.at_least("sequences", 0, problem.sequences).at_least("rows", 0, problem.rows).at_least("heads", 1, problem.heads);
  found.at_least("longest", 1, problem.longest).at_most("longest", kMostAttentionTokens, problem.longest);
  found.require(is_attention_head_width(problem.head_width), "head_width",
                " must be 64 or 80, but is " + std::to_string(problem.head_width));
  found.require(problem.type == DataType::kBfloat16, "type", " must be bfloat16");
  const bool equal = problem.offsets == nullptr;
  found.require(!equal || problem.rows == problem.sequences * problem.longest, "rows", " must be sequences * longest without offsets");
  found.require(attention_configurations(problem, pass).size() > 0, "configuration", " does not exist or is too small");
  return found;
}

bool is_empty(const AttentionProblem& problem) {
  return problem.sequences == 0 || problem.rows == 0;
}

ArgumentCheck& check_rows(ArgumentCheck& found, const char* name, const void* rows) {
  found.present(name, rows);
  return found.require(reinterpret_cast<std::uintptr_t>(rows) % 16 == 0, name, " must begin at a multiple of 16 bytes");
}

template <std::size_t kCount>
std::vector<std::string> fitting(const AttentionConfiguration (&all)[kCount], AttentionProblem problem) {
  std::vector<std::string> out;
  for (const AttentionConfiguration& each : all) {
    const bool named = problem.configuration == nullptr || std::strcmp(problem.configuration, each.name) == 0;
    if (named && problem.longest <= each.tokens) out.emplace_back(each.name);
  }
  return out;
}

}  // namespace

std::vector<std::string> attention_configurations(const AttentionProblem& problem, Pass pass) {
  if (!is_attention_head_width(problem.head_width) || problem.type != DataType::kBfloat16) return {};
  return pass == Pass::kForward ? fitting(kAttentionForward, problem) : fitting(kAttentionBackward, problem);
}

Status check(const AttentionForward& arguments) {
  ArgumentCheck found = check_problem(arguments.problem, Pass::kForward);
  if (!found.ok() || is_empty(arguments.problem)) return found.status();
  check_rows(found, "qkv", arguments.qkv);
  check_rows(found, "output", arguments.output);
  return found.present("statistics", arguments.statistics).status();
}

Status check(const AttentionBackward& arguments) {
  ArgumentCheck found = check_problem(arguments.problem, Pass::kBackward);
  if (!found.ok() || is_empty(arguments.problem)) return found.status();
  check_rows(found, "qkv", arguments.qkv);
  check_rows(found, "output", arguments.output);
  check_rows(found, "grad_output", arguments.grad_output);
  check_rows(found, "grad_qkv", arguments.grad_qkv);
  return found.present("statistics", arguments.statistics).status();
}

}  // namespace tessera::kernels
