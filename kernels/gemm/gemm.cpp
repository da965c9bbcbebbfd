#include "kernels/gemm/gemm.h"

#include "kernels/argument_check.h"

namespace tessera::kernels {

Status check(const GemmCall& call) {
  const GemmProblem& p = call.problem;
  ArgumentCheck found("gemm");
  found.at_least("rows", 1, p.rows).at_least("in", 8, p.in).at_least("out", 8, p.out);
  found.require(p.in % 8 == 0 && p.out % 8 == 0, "in", " and out must be multiples of 8");
  const bool of_weight = p.kind == GemmKind::kWeightGradient, forward = p.kind == GemmKind::kForward;
  found.require(of_weight || p.result == DataType::kBfloat16, "result", " must be bfloat16, except for a weight gradient");
  found.require(!of_weight || !p.activated, "activated", " must be false for a weight gradient");
  found.require(!p.accumulate || (!p.bias && !p.activated), "accumulate", " must be false with a bias or an activation");
  found.require(!p.bias || p.activated || p.kind != GemmKind::kInputGradient, "bias", " needs an activation in an input gradient");
  const auto aligned = [&](const char* name, bool used, const void* pointer) {
    if (!used) return;
    found.present(name, pointer).require(reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0, name, " is not at a multiple of 16 bytes");
  };
  aligned("x", p.kind != GemmKind::kInputGradient, call.x);
  aligned("weight", !of_weight, call.weight);
  aligned("grad_y", !forward, call.grad_y);
  aligned("bias", forward && p.bias, call.bias);
  aligned("before", p.activated, call.before);
  aligned("result", true, call.result);
  aligned("bias_gradient", !forward && p.bias, call.bias_gradient);
  found.require(!call.algorithm.empty(), "algorithm", " has no name");
  return found.status();
}

}  // namespace tessera::kernels
