#include "kernels/cpu/instruction_set.h"

#include <optional>
#include <string>

namespace tessera::kernels {
namespace {

/// Returns the instruction set with this name; for "", the best one. Returns nullopt if this machine lacks it.
std::optional<InstructionSet> find(const std::string& name) {
#if defined(TESSERA_X86_KERNELS)
  __builtin_cpu_init();
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_avx512 && (name.empty() || name == "avx512")) return InstructionSet::kAvx512;
  if (has_avx2 && (name.empty() || name == "avx2")) return InstructionSet::kAvx2;
#endif
  if (name.empty() || name == "portable") return InstructionSet::kPortable;
  return std::nullopt;
}

std::optional<InstructionSet> chosen;  // set by use_instruction_set(); if unset, the best is used

}  // namespace

InstructionSet instruction_set() {
  static const InstructionSet best = *find("");
  return chosen.value_or(best);
}

bool use_instruction_set(const char* name) {
  const std::optional<InstructionSet> found = find(name);
  if (found) chosen = found;
  return found.has_value();
}

}  // namespace tessera::kernels
