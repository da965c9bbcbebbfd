#pragma once

// Products with an activation from CUTLASS, for compute capability 9.0. Only with TESSERA_WITH_CUTLASS.
#include "kernels/gemm/gemm.h"

namespace tessera::kernels {

/// Returns the names of the kernels that can compute the product, best first.
std::vector<std::string> cutlass_algorithms(const GemmProblem& problem);
/// Returns the bytes of workspace that a product needs.
std::size_t cutlass_workspace(const GemmProblem& problem);
/// Runs the kernel that the call names.
Status cutlass_gemm(const GemmCall& call, void* stream);

}  // namespace tessera::kernels
