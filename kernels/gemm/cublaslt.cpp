#include "kernels/gemm/cublaslt.h"

#include <dlfcn.h>

#include <algorithm>
#include <memory>

#include <cuda_runtime.h>

#ifdef TESSERA_HAS_CUTLASS
#include "kernels/gemm/cutlass_gemm.h"
#endif

namespace tessera::kernels {
namespace {

bool forward(const GemmProblem& problem) {
  return problem.kind == GemmKind::kForward;
}

constexpr int kMostAlgorithms = 8;
constexpr std::size_t kMostProblems = 4096;  // whose algorithms are remembered; packed rows have many numbers of rows

/// A product as cuBLASLt sees it, with matrices in column-major order: D [m, n] = op(A) op(B). A row-major matrix [r, c] is a column-major
/// one [c, r].
struct Shape {
  struct Matrix {
    cudaDataType_t type;
    std::uint64_t rows, columns;
  };
  Matrix a, b, d;
  cublasOperation_t of_a, of_b;
  cublasLtEpilogue_t epilogue;

  explicit Shape(const GemmProblem& p) {
    const auto in = static_cast<std::uint64_t>(p.in), out = static_cast<std::uint64_t>(p.out), rows = static_cast<std::uint64_t>(p.rows);
    const Matrix weight = {CUDA_R_16BF, in, out}, x = {CUDA_R_16BF, in, rows}, y = {CUDA_R_16BF, out, rows};
    of_a = of_b = CUBLAS_OP_N;
    epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    switch (p.kind) {
      case GemmKind::kForward:
        a = weight, b = x, d = y, of_a = CUBLAS_OP_T;
        if (p.activated) epilogue = p.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
        if (!p.activated && p.bias) epilogue = CUBLASLT_EPILOGUE_BIAS;
        break;
      case GemmKind::kInputGradient:
        a = weight, b = y, d = x;
        if (p.activated) epilogue = CUBLASLT_EPILOGUE_DGELU;
        break;
      case GemmKind::kWeightGradient:
        a = x, b = y, d = weight, of_b = CUBLAS_OP_T;
        d.type = p.result == DataType::kFloat32 ? CUDA_R_32F : CUDA_R_16BF;
        if (p.bias) epilogue = CUBLASLT_EPILOGUE_BGRADB;
        break;
    }
  }
};

/// The objects of cuBLASLt that describe a product.
class Description {
 public:
  /// `bias` and `before` stand for the addresses of these arrays; algorithms depend on their alignment.
  Description(const CublasLt& library, const GemmProblem& problem, const void* bias, const void* before) : library_(library) {
    const Shape shape(problem);
    keep(library.cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set(CUBLASLT_MATMUL_DESC_TRANSA, shape.of_a);
    set(CUBLASLT_MATMUL_DESC_TRANSB, shape.of_b);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, shape.epilogue);
    if (problem.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    if (problem.activated) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, before);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, static_cast<std::int64_t>(shape.d.rows));
    }
    const auto layout = [&](cublasLtMatrixLayout_t& to, const Shape::Matrix& m) {
      keep(library.cublasLtMatrixLayoutCreate(&to, m.type, m.rows, m.columns, static_cast<std::int64_t>(m.rows)));
    };
    layout(a, shape.a);
    layout(b, shape.b);
    layout(d, shape.d);
  }
  ~Description() {
    if (product != nullptr) library_.cublasLtMatmulDescDestroy(product);
    for (const cublasLtMatrixLayout_t layout : {a, b, d})
      if (layout != nullptr) library_.cublasLtMatrixLayoutDestroy(layout);
  }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;

  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;  // the first failure
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;

 private:
  void keep(cublasStatus_t found) {
    if (status == CUBLAS_STATUS_SUCCESS) status = found;
  }
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    if (status == CUBLAS_STATUS_SUCCESS) keep(library_.cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof(value)));
  }
  const CublasLt& library_;
};

}  // namespace

CublasLt CublasLt::loaded() {
  const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  CublasLt out;
  void* const library = dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return out;
  bool complete = true;
#define TESSERA_FIND(function)                                                     \
  out.function = reinterpret_cast<decltype(out.function)>(dlsym(library, #function)); \
  complete = complete && out.function != nullptr;
  TESSERA_CUBLASLT_FUNCTIONS(TESSERA_FIND)
#undef TESSERA_FIND
  return complete ? out : CublasLt();
}

CublasLtGemm::CublasLtGemm(const CublasLt& library, int compute_capability, std::size_t workspace)
    : library_(library), compute_capability_(compute_capability), workspace_(workspace) {
  if (!library_.available() || library_.cublasLtCreate(&handle_) != CUBLAS_STATUS_SUCCESS) handle_ = nullptr;
}

std::vector<CublasLtGemm::Algorithm> CublasLtGemm::find(const GemmProblem& problem) {
  // cuBLASLt's GELU is the approximation with tanh. It would round the bias gradient of an activated input gradient to bfloat16; the
  // product for the weight gradient computes the same sums in float32.
  const bool possible = !problem.activated || (problem.activation == Activation::kGeluTanh && (forward(problem) || !problem.bias));
  if (handle_ == nullptr || !possible) return {};
  const Key key(problem.kind, problem.rows, problem.in, problem.out, problem.result, problem.bias, problem.activated, problem.accumulate);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto known = found_.find(key); known != found_.end()) return known->second;
  }
  void* const aligned = reinterpret_cast<void*>(16);  // never dereferenced
  const Description description(library_, problem, aligned, aligned);
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulHeuristicResult_t results[kMostAlgorithms];
  int count = 0;
  bool ok = description.status == CUBLAS_STATUS_SUCCESS && library_.cublasLtMatmulPreferenceCreate(&preference) == CUBLAS_STATUS_SUCCESS;
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    ok = ok && library_.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)) == CUBLAS_STATUS_SUCCESS;
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace_));
  for (const auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    prefer(attribute, std::uint32_t{16});
  ok = ok && library_.cublasLtMatmulAlgoGetHeuristic(handle_, description.product, description.a, description.b, description.d,
                                                     description.d, preference, kMostAlgorithms, results, &count) == CUBLAS_STATUS_SUCCESS;
  if (preference != nullptr) library_.cublasLtMatmulPreferenceDestroy(preference);
  std::vector<Algorithm> out;
  for (int i = 0; ok && i < count; ++i) {
    if (results[i].state != CUBLAS_STATUS_SUCCESS) continue;
    Algorithm each{"cublaslt", results[i].algo};
    for (int attribute = CUBLASLT_ALGO_CONFIG_ID; attribute <= CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID; ++attribute) {
      std::uint32_t value = 0;  // some attributes have 16 bits
      std::size_t written = 0;
      const auto which = static_cast<cublasLtMatmulAlgoConfigAttributes_t>(attribute);
      const bool narrow = which == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID || which == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
      library_.cublasLtMatmulAlgoConfigGetAttribute(&each.value, which, &value, narrow ? 2 : 4, &written);
      each.name.append("/").append(std::to_string(value));  // GCC warns of operator+
    }
    out.push_back(each);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (found_.size() >= kMostProblems) found_.clear();
  return found_[key] = out;
}

std::vector<std::string> CublasLtGemm::algorithms(const GemmProblem& problem) {
  std::vector<std::string> names;
  for (const Algorithm& each : find(problem)) names.push_back(each.name);
  return names;
}

Status CublasLtGemm::run(const GemmCall& call, void* stream) {
  const GemmProblem& p = call.problem;
  const std::vector<Algorithm> candidates = find(p);
  const auto has_name = [&](const Algorithm& each) { return each.name == call.algorithm; };
  const auto chosen = std::find_if(candidates.begin(), candidates.end(), has_name);
  if (chosen == candidates.end()) return Status::failure("gemm: no algorithm " + call.algorithm);
  const Description description(library_, p, forward(p) ? call.bias : call.bias_gradient, call.before);
  const void* const a = p.kind == GemmKind::kWeightGradient ? call.x : call.weight;
  const void* const b = forward(p) ? call.x : call.grad_y;
  const float one = 1.0f, rest = p.accumulate ? 1.0f : 0.0f;
  cublasStatus_t status = description.status;
  if (status == CUBLAS_STATUS_SUCCESS)
    status = library_.cublasLtMatmul(handle_, description.product, &one, a, description.a, b, description.b, &rest, call.result,
                                     description.d, call.result, description.d, &chosen->value, call.workspace, workspace_,
                                     static_cast<cudaStream_t>(stream));
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return Status::failure("gemm: cuBLASLt failed with status " + std::to_string(static_cast<int>(status)) + " (" + call.algorithm + ")");
}

namespace cuda {
namespace {

constexpr std::size_t kWorkspace = std::size_t{32} << 20;  // what NVIDIA recommends for compute capability 9.0

/// Returns the products of the current device; null without a GPU or cuBLASLt.
CublasLtGemm* of_device() {
  static std::mutex mutex;
  static std::map<int, std::unique_ptr<CublasLtGemm>> of_devices;
  int device = 0, major = 0, minor = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  auto& found = of_devices[device];
  if (!found) {
    const CublasLt library = CublasLt::loaded();
    if (!library.available() || cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess)
      return nullptr;
    found = std::make_unique<CublasLtGemm>(library, 10 * major + minor, kWorkspace);
  }
  return found.get();
}

}  // namespace

bool has_gemm() {
  static const bool available = CublasLt::loaded().available();
  return available;
}

std::vector<std::string> gemm_algorithms(const GemmProblem& problem) {
  CublasLtGemm* const products = of_device();
  if (products == nullptr) return {};
  std::vector<std::string> names = products->algorithms(problem);
#ifdef TESSERA_HAS_CUTLASS
  if (products->compute_capability() == 90) {
    const std::vector<std::string> more = cutlass_algorithms(problem);
    if (cutlass_workspace(problem) <= kWorkspace) names.insert(names.end(), more.begin(), more.end());
  }
#endif
  return names;
}

std::size_t gemm_workspace() {
  return kWorkspace;
}

Status gemm(const GemmCall& call, void* stream) {
  if (Status status = check(call); !status.ok()) return status;
#ifdef TESSERA_HAS_CUTLASS
  if (call.algorithm.starts_with("cutlass/")) return cutlass_gemm(call, stream);
#endif
  return of_device()->run(call, stream);
}

}  // namespace cuda
}  // namespace tessera::kernels
