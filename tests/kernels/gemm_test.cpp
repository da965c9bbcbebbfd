// Runs the products of kernels/gemm with functions that take the place of cuBLASLt's: they keep what they are told, and multiply on the CPU
// as cuBLASLt's documentation says. So the descriptions of the products are tested without a GPU, but not the library.
#include <cmath>
#include <cstring>
#include <map>

#include <gtest/gtest.h>

#include "kernels/gemm/cublaslt.h"
#include "tests/kernels/backend.h"
#include "tests/kernels/sparsify_group_case.h"

namespace tessera::kernels::test {
namespace {

struct Layout {
  cudaDataType_t type;
  std::uint64_t rows, columns;
  std::int64_t pitch;
  std::size_t index(std::uint64_t row, std::uint64_t column) const { return row + column * static_cast<std::uint64_t>(pitch); }
};
using Attributes = std::map<int, std::vector<unsigned char>>;

double read(const void* data, cudaDataType_t type, std::size_t i) {
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[i];
  return bfloat16_to_float(static_cast<const std::uint16_t*>(data)[i]);
}
void write(void* data, cudaDataType_t type, std::size_t i, double value) {
  if (type == CUDA_R_32F)
    static_cast<float*>(data)[i] = static_cast<float>(value);
  else
    static_cast<std::uint16_t*>(data)[i] = float_to_bfloat16(static_cast<float>(value));
}

template <class T>
T attribute(const Attributes& all, cublasLtMatmulDescAttributes_t which) {
  T value{};
  if (const auto found = all.find(which); found != all.end()) std::memcpy(&value, found->second.data(), sizeof(value));
  return value;
}

double gelu_tanh_gradient(double x) {
  const double root = std::sqrt(2 / M_PI), t = std::tanh(root * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x);
}
double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

bool refuses_bias_gradients = false;
std::uint64_t last_algorithm = 0;

cublasStatus_t multiply(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                        const void* b, cublasLtMatrixLayout_t b_layout, const void* beta, const void* c, cublasLtMatrixLayout_t, void* d,
                        cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t bytes,
                        cudaStream_t) {
  EXPECT_NE(algorithm, nullptr);
  last_algorithm = algorithm->data[0];
  EXPECT_TRUE(workspace != nullptr && bytes == 1024);
  EXPECT_EQ(c, d);
  const auto& all = *reinterpret_cast<const Attributes*>(product);
  const Layout la = *reinterpret_cast<const Layout*>(a_layout), lb = *reinterpret_cast<const Layout*>(b_layout),
               ld = *reinterpret_cast<const Layout*>(d_layout);
  const bool ta = attribute<cublasOperation_t>(all, CUBLASLT_MATMUL_DESC_TRANSA) == CUBLAS_OP_T,
             tb = attribute<cublasOperation_t>(all, CUBLASLT_MATMUL_DESC_TRANSB) == CUBLAS_OP_T;
  const std::uint64_t depth = ta ? la.rows : la.columns;
  EXPECT_EQ(ta ? la.columns : la.rows, ld.rows);
  EXPECT_EQ(tb ? lb.rows : lb.columns, ld.columns);
  EXPECT_EQ(tb ? lb.columns : lb.rows, depth);
  const int epilogue = static_cast<int>(attribute<cublasLtEpilogue_t>(all, CUBLASLT_MATMUL_DESC_EPILOGUE));
  void* const bias = attribute<void*>(all, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
  void* const aux = attribute<void*>(all, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER);
  const auto pitch = static_cast<std::uint64_t>(attribute<std::int64_t>(all, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD));
  const auto b_at = [&](std::uint64_t k, std::uint64_t column) { return read(b, lb.type, tb ? lb.index(column, k) : lb.index(k, column)); };
  for (std::uint64_t column = 0; column < ld.columns; ++column) {
    double of_b = 0;
    for (std::uint64_t k = 0; k < depth; ++k) of_b += b_at(k, column);
    if (epilogue == CUBLASLT_EPILOGUE_BGRADB) write(bias, ld.type, column, of_b);  // as many as D has columns
    for (std::uint64_t row = 0; row < ld.rows; ++row) {
      double sum = 0;
      for (std::uint64_t k = 0; k < depth; ++k) sum += read(a, la.type, ta ? la.index(k, row) : la.index(row, k)) * b_at(k, column);
      sum *= *static_cast<const float*>(alpha);
      if (*static_cast<const float*>(beta) != 0.0f) sum += *static_cast<const float*>(beta) * read(c, ld.type, ld.index(row, column));
      if (epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) sum += read(bias, ld.type, row);
      if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX) {
        write(aux, ld.type, row + column * pitch, sum);
        sum = gelu_tanh(sum);
      }
      if (epilogue == CUBLASLT_EPILOGUE_DGELU) sum *= gelu_tanh_gradient(read(aux, ld.type, row + column * pitch));
      write(d, ld.type, ld.index(row, column), sum);
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

CublasLt stand_in() {
  CublasLt out;
  out.cublasLtCreate = [](cublasLtHandle_t* handle) {
    *handle = reinterpret_cast<cublasLtHandle_t>(1);
    return CUBLAS_STATUS_SUCCESS;
  };
  out.cublasLtMatmul = multiply;
  out.cublasLtMatmulDescCreate = [](cublasLtMatmulDesc_t* to, cublasComputeType_t compute, cudaDataType_t scale) {
    EXPECT_EQ(compute, CUBLAS_COMPUTE_32F);
    EXPECT_EQ(scale, CUDA_R_32F);
    *to = reinterpret_cast<cublasLtMatmulDesc_t>(new Attributes);
    return CUBLAS_STATUS_SUCCESS;
  };
  out.cublasLtMatmulDescDestroy = [](cublasLtMatmulDesc_t each) {
    delete reinterpret_cast<Attributes*>(each);
    return CUBLAS_STATUS_SUCCESS;
  };
  out.cublasLtMatmulDescSetAttribute = [](cublasLtMatmulDesc_t to, cublasLtMatmulDescAttributes_t which, const void* value, size_t bytes) {
    const auto* const from = static_cast<const unsigned char*>(value);
    (*reinterpret_cast<Attributes*>(to))[which].assign(from, from + bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  out.cublasLtMatrixLayoutCreate = [](cublasLtMatrixLayout_t* to, cudaDataType type, uint64_t rows, uint64_t columns, int64_t pitch) {
    *to = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, columns, pitch});
    return CUBLAS_STATUS_SUCCESS;
  };
  out.cublasLtMatrixLayoutDestroy = [](cublasLtMatrixLayout_t each) {
    delete reinterpret_cast<Layout*>(each);
    return CUBLAS_STATUS_SUCCESS;
  };
  out.cublasLtMatmulPreferenceCreate = [](cublasLtMatmulPreference_t* to) {
    *to = nullptr;
    return CUBLAS_STATUS_SUCCESS;
  };
  out.cublasLtMatmulPreferenceDestroy = [](cublasLtMatmulPreference_t) { return CUBLAS_STATUS_SUCCESS; };
  out.cublasLtMatmulPreferenceSetAttribute = [](cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void*, size_t) {
    return CUBLAS_STATUS_SUCCESS;
  };
  out.cublasLtMatmulAlgoGetHeuristic = [](cublasLtHandle_t, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                          cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int most,
                                          cublasLtMatmulHeuristicResult_t* results, int* count) {
    EXPECT_EQ(most, 8);
    const auto epilogue = attribute<cublasLtEpilogue_t>(*reinterpret_cast<const Attributes*>(product), CUBLASLT_MATMUL_DESC_EPILOGUE);
    *count = 0;
    if (refuses_bias_gradients && epilogue == CUBLASLT_EPILOGUE_BGRADB) return CUBLAS_STATUS_NOT_SUPPORTED;
    for (std::uint64_t id : {66, 67, 68}) {
      results[*count] = {};
      results[*count].algo.data[0] = id;
      results[*count].state = id == 67 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
      ++*count;
    }
    return CUBLAS_STATUS_SUCCESS;
  };
  out.cublasLtMatmulAlgoConfigGetAttribute = [](const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulAlgoConfigAttributes_t which, void* to,
                                                size_t bytes, size_t* written) {
    const std::uint64_t all = which == CUBLASLT_ALGO_CONFIG_ID ? algorithm->data[0] : static_cast<std::uint64_t>(which);
    const auto value = static_cast<std::uint32_t>(all);
    std::memcpy(to, &value, bytes);
    *written = bytes;
    return CUBLAS_STATUS_SUCCESS;
  };
  return out;
}

constexpr std::int64_t kRows = 5, kIn = 8, kOut = 16;
constexpr DataType kNarrow = DataType::kBfloat16;

struct Matrix {
  std::vector<float> values;
  std::vector<unsigned char> bytes;
  explicit Matrix(std::int64_t count, unsigned seed = 0, DataType type = kNarrow)
      : values(seed == 0 ? std::vector<float>(static_cast<std::size_t>(count), NAN) : rounded(normal_values(count, seed), type)),
        bytes(to_bytes(values, type)) {}
  double at(std::int64_t row, std::int64_t column, std::int64_t width) const {
    return values[static_cast<std::size_t>(row * width + column)];
  }
};

class Gemm : public testing::Test {
 protected:
  Gemm() { refuses_bias_gradients = false; }
  CublasLtGemm products{stand_in(), 90, 1024};
  Matrix x{kRows * kIn, 1}, weight{kOut * kIn, 2}, grad_y{kRows * kOut, 3}, bias{kOut, 4}, before_in{kRows * kIn, 5};
  alignas(16) unsigned char workspace[16] = {};

  void run(GemmCall call) {
    call.workspace = workspace;
    if (call.algorithm.empty()) call.algorithm = products.algorithms(call.problem).at(0);
    expect_ok(check(call));
    expect_ok(products.run(call, nullptr));
  }
  // The product of two matrices, by element.
  using Elements = std::function<double(std::int64_t, std::int64_t)>;
  static std::vector<double> product(std::int64_t rows, std::int64_t columns, std::int64_t depth, const Elements& a, const Elements& b) {
    std::vector<double> out;
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) {
        out.push_back(0);
        for (std::int64_t k = 0; k < depth; ++k) out.back() += a(i, k) * b(k, j);
      }
    return out;
  }
  std::vector<double> y() const {
    const Elements transposed = [&](auto k, auto j) { return weight.at(j, k, kIn); };
    auto out = product(kRows, kOut, kIn, [&](auto i, auto k) { return x.at(i, k, kIn); }, transposed);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += bias.values[i % kOut];
    return out;
  }
  std::vector<double> grad_x() const {
    const Elements gradient = [&](auto i, auto k) { return grad_y.at(i, k, kOut); };
    return product(kRows, kIn, kOut, gradient, [&](auto k, auto j) { return weight.at(k, j, kIn); });
  }
};

TEST_F(Gemm, MapsRows) {
  Matrix result(kRows * kOut), before(kRows * kOut);
  GemmCall call{{GemmKind::kForward, kRows, kIn, kOut, kNarrow, true}};
  call.x = x.bytes.data(), call.weight = weight.bytes.data(), call.bias = bias.bytes.data(), call.result = result.bytes.data();
  run(call);
  expect_close("y", from_bytes(result.bytes, kNarrow), y(), 4e-3);
  call.problem.activated = true, call.problem.activation = Activation::kGeluTanh, call.before = before.bytes.data();
  run(call);
  std::vector<double> after = y();
  for (double& value : after) value = gelu_tanh(value);
  expect_close("before", from_bytes(before.bytes, kNarrow), y(), 4e-3);
  expect_close("after", from_bytes(result.bytes, kNarrow), after, 4e-3);
}

TEST_F(Gemm, ComputesGradientsOfInputs) {
  Matrix result(kRows * kIn);
  GemmCall call{{GemmKind::kInputGradient, kRows, kIn, kOut}};
  call.grad_y = grad_y.bytes.data(), call.weight = weight.bytes.data(), call.result = result.bytes.data();
  run(call);
  expect_close("grad_x", from_bytes(result.bytes, kNarrow), grad_x(), 4e-3);
  std::vector<double> twice = grad_x(), activated = grad_x();
  for (double& value : twice) value *= 2;
  call.problem.accumulate = true;
  run(call);
  expect_close("sum", from_bytes(result.bytes, kNarrow), twice, 6e-3);
  call.problem.accumulate = false, call.problem.activated = true, call.problem.activation = Activation::kGeluTanh;
  call.before = before_in.bytes.data();
  run(call);
  for (std::size_t i = 0; i < activated.size(); ++i) activated[i] *= gelu_tanh_gradient(before_in.values[i]);
  expect_close("activated", from_bytes(result.bytes, kNarrow), activated, 4e-3);
}

TEST_F(Gemm, ComputesGradientsOfParametersInFloat32) {
  const DataType wide = DataType::kFloat32;
  Matrix result(kOut * kIn, 0, wide), sums(kOut, 0, wide);
  GemmCall call{{GemmKind::kWeightGradient, kRows, kIn, kOut, wide, true}};
  call.grad_y = grad_y.bytes.data(), call.x = x.bytes.data(), call.result = result.bytes.data(), call.bias_gradient = sums.bytes.data();
  run(call);
  const Elements transposed = [&](auto i, auto k) { return grad_y.at(k, i, kOut); };
  expect_close("weight", from_bytes(result.bytes, wide),
               product(kOut, kIn, kRows, transposed, [&](auto k, auto j) { return x.at(k, j, kIn); }), 1e-6);
  expect_close("bias", from_bytes(sums.bytes, wide), product(kOut, 1, kRows, transposed, [](auto, auto) { return 1.0; }), 1e-6);
}

TEST_F(Gemm, ListsWhatTheLibraryCanCompute) {
  const GemmProblem plain{GemmKind::kForward, kRows, kIn, kOut};
  EXPECT_EQ(products.algorithms(plain), (std::vector<std::string>{"cublaslt/66/1/2/3/4/5/6/7/8", "cublaslt/68/1/2/3/4/5/6/7/8"}));
  GemmProblem activated = plain;
  activated.activated = true;
  EXPECT_TRUE(products.algorithms(activated).empty()) << "the library has only the approximation with tanh";
  activated.activation = Activation::kGeluTanh;
  EXPECT_FALSE(products.algorithms(activated).empty());
  activated.kind = GemmKind::kInputGradient, activated.bias = true;
  EXPECT_TRUE(products.algorithms(activated).empty()) << "the library would round the bias gradient";
  refuses_bias_gradients = true;
  EXPECT_TRUE(products.algorithms({GemmKind::kWeightGradient, kRows, kIn, kOut, DataType::kFloat32, true}).empty());
  EXPECT_FALSE(products.algorithms({GemmKind::kWeightGradient, kRows, kIn, kOut, DataType::kFloat32}).empty());
  GemmCall call{plain};
  call.algorithm = "cublaslt/67/1/2/3/4/5/6/7/8";
  EXPECT_EQ(products.run(call, nullptr).message(), "gemm: no algorithm cublaslt/67/1/2/3/4/5/6/7/8");
}

TEST_F(Gemm, RunsTheAlgorithmThatTheCallNames) {
  Matrix result(kRows * kOut);
  GemmCall call{{GemmKind::kForward, kRows, kIn, kOut}};
  call.x = x.bytes.data(), call.weight = weight.bytes.data(), call.result = result.bytes.data();
  for (const std::uint64_t id : {68, 66}) {
    call.algorithm = "cublaslt/" + std::to_string(id) + "/1/2/3/4/5/6/7/8";
    run(call);
    EXPECT_EQ(last_algorithm, id);
  }
}

TEST_F(Gemm, ErrorsNameBadArguments) {
  const auto message = [](const GemmProblem& problem) { return check(GemmCall{problem}).message(); };
  EXPECT_EQ(message({GemmKind::kForward, 0, kIn, kOut}), "gemm: rows must be at least 1, but is 0");
  EXPECT_EQ(message({GemmKind::kForward, 1, 12, kOut}), "gemm: in and out must be multiples of 8");
  EXPECT_EQ(message({GemmKind::kForward, 1, kIn, kOut, DataType::kFloat32}), "gemm: result must be bfloat16, except for a weight gradient");
  EXPECT_EQ(message({GemmKind::kInputGradient, 1, kIn, kOut, kNarrow, true}), "gemm: bias needs an activation in an input gradient");
  EXPECT_EQ(message({GemmKind::kForward, 1, kIn, kOut}), "gemm: x is a null pointer");
  GemmCall call{{GemmKind::kForward, 1, kIn, kOut}};
  call.x = reinterpret_cast<const void*>(8);
  EXPECT_EQ(check(call).message(), "gemm: x is not at a multiple of 16 bytes");
  call.x = call.weight = x.bytes.data(), call.result = before_in.bytes.data();
  EXPECT_EQ(check(call).message(), "gemm: algorithm has no name");
}

}  // namespace
}  // namespace tessera::kernels::test
