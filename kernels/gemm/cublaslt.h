#pragma once

// Products by cuBLASLt. Only with CUDA.
#include <map>
#include <mutex>
#include <tuple>

#include <cublasLt.h>

#include "kernels/gemm/gemm.h"

namespace tessera::kernels {

#define TESSERA_CUBLASLT_FUNCTIONS(use)                                                                                        \
  use(cublasLtCreate) use(cublasLtMatmul) use(cublasLtMatmulDescCreate) use(cublasLtMatmulDescDestroy)                         \
  use(cublasLtMatmulDescSetAttribute) use(cublasLtMatrixLayoutCreate) use(cublasLtMatrixLayoutDestroy)                         \
  use(cublasLtMatmulPreferenceCreate) use(cublasLtMatmulPreferenceDestroy) use(cublasLtMatmulPreferenceSetAttribute)           \
  use(cublasLtMatmulAlgoGetHeuristic) use(cublasLtMatmulAlgoConfigGetAttribute)

/// The functions of cuBLASLt. Nothing links the library: libtessera_ops.so also runs in a PyTorch without CUDA. Tests use functions of
/// their own.
struct CublasLt {
#define TESSERA_MEMBER(name) decltype(&::name) name = nullptr;
  TESSERA_CUBLASLT_FUNCTIONS(TESSERA_MEMBER)
#undef TESSERA_MEMBER

  /// Returns the functions of the library that LibTorch has loaded; null ones if it has loaded none of this build's version.
  static CublasLt loaded();
  bool available() const { return cublasLtMatmul != nullptr; }
};

/// The products of one GPU.
class CublasLtGemm {
 public:
  /// `workspace`: the bytes that algorithms may use.
  CublasLtGemm(const CublasLt& library, int compute_capability, std::size_t workspace);

  std::vector<std::string> algorithms(const GemmProblem& problem);
  Status run(const GemmCall& call, void* stream);
  int compute_capability() const { return compute_capability_; }

 private:
  struct Algorithm {
    std::string name;
    cublasLtMatmulAlgo_t value;
  };
  using Key = std::tuple<GemmKind, std::int64_t, std::int64_t, std::int64_t, DataType, bool, bool, bool>;
  std::vector<Algorithm> find(const GemmProblem& problem);

  CublasLt library_;
  int compute_capability_;
  std::size_t workspace_;
  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;
  std::map<Key, std::vector<Algorithm>> found_;
};

}  // namespace tessera::kernels
