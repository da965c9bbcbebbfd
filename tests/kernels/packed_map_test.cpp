#include "kernels/packed_map/packed_map.h"

#include <array>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/instruction_set.h"

namespace tessera::kernels::cpu {
namespace {

using Vector = std::vector<float>;

Vector random_values(std::int64_t count, unsigned seed, double deviation = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw(0, static_cast<float>(deviation));
  Vector out(static_cast<std::size_t>(count));
  for (float& value : out) value = draw(random);
  return out;
}

double activated(double x, Activation activation) {
  if (activation == Activation::kGelu) return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
  if (activation == Activation::kGeluTanh) return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
  return x / (1 + std::exp(-(activation == Activation::kQuickGelu ? 1.702 : 1.0) * x));
}

float rounded(float value, DataType type) {
  return type == DataType::kBfloat16 ? bfloat16_to_float(float_to_bfloat16(value)) : value;
}

/// Memory that is aligned as the kernels need it.
struct Memory {
  explicit Memory(std::size_t bytes) : data(std::aligned_alloc(64, (bytes + 63) / 64 * 64)) {}
  ~Memory() { std::free(data); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* const data;
};

/// A map with random weights.
struct Map {
  PackedMapShape shape;
  Vector weight, bias;
  bool activates = false, biased = true;
  Activation activation = Activation::kGelu;

  Map(std::int64_t in, std::int64_t out, DataType type)
      : shape{in, out, type}, weight(random_values(in * out, 1, 1 / std::sqrt(static_cast<double>(in)))), bias(random_values(out, 2)) {}

  Vector operator()(const Vector& x, int threads = 1) const {
    const std::int64_t rows = std::ssize(x) / shape.in;
    const Memory packed(packed_weight_bytes(shape)), workspace(packed_map_workspace(shape, rows));
    pack_weight(shape, weight.data(), packed.data, {.threads = threads, .run = {}});
    Vector y(static_cast<std::size_t>(rows * shape.out), std::nanf(""));
    const Status status = packed_map({shape, rows, x.data(), packed.data, biased ? bias.data() : nullptr, activates, activation, y.data(), workspace.data},
                                     {.threads = threads, .run = {}});
    EXPECT_TRUE(status.ok()) << status.message();
    return y;
  }

  /// The result in float64, for operands as the kernel rounds them.
  double expected(const Vector& x, std::int64_t row, std::int64_t column) const {
    double sum = biased ? bias[static_cast<std::size_t>(column)] : 0;
    for (std::int64_t k = 0; k < shape.in; ++k)
      sum += static_cast<double>(rounded(x[static_cast<std::size_t>(row * shape.in + k)], shape.type)) *
             rounded(weight[static_cast<std::size_t>(column * shape.in + k)], shape.type);
    return activates ? activated(sum, activation) : sum;
  }
};

struct Case {
  const char* instructions;
  DataType type;
};

class PackedMap : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!use_instruction_set(GetParam().instructions) || !has_packed_map(GetParam().type)) GTEST_SKIP() << "this machine lacks the instructions";
  }
  void TearDown() override { use_instruction_set(""); }
};

TEST_P(PackedMap, EqualsTheMapInDoublePrecision) {
  for (const auto& [rows, in, out] : std::vector<std::array<std::int64_t, 3>>{
           {1, 1, 1}, {13, 64, 32}, {14, 7, 33}, {15, 65, 31}, {29, 257, 96}, {50, 100, 70}, {500, 36, 40}}) {
    SCOPED_TRACE(testing::Message() << rows << " rows, " << in << " -> " << out);
    Map map(in, out, GetParam().type);
    const Vector x = random_values(rows * in, 3);
    for (const int way : {-2, -1, 0, 1, 2, 3}) {
      map.biased = way != -2;
      map.activates = way >= 0;
      map.activation = static_cast<Activation>(std::max(0, way));
      const Vector y = map(x);
      for (std::int64_t i = 0; i < std::ssize(y); ++i)
        ASSERT_NEAR(y[static_cast<std::size_t>(i)], map.expected(x, i / out, i % out), 1e-5) << "entry " << i << ", way " << way;
    }
  }
}

TEST_P(PackedMap, ARowHasTheSameBitsInEveryBatchAndForAnyNumberOfThreads) {
  const Map map(130, 100, GetParam().type);
  const Vector x = random_values(70 * 130, 4), all = map(x);
  EXPECT_EQ(map(x, 3), all);
  for (const std::int64_t rows : {1, 2, 13, 27, 69}) {
    const Vector some = map(Vector(x.end() - rows * 130, x.end()));
    EXPECT_EQ(some, Vector(all.end() - rows * 100, all.end())) << rows << " rows";
  }
}

TEST_P(PackedMap, LargeArgumentsOfActivationsAreFinite) {
  Map map(1, 1, GetParam().type);
  map.weight = {1};
  map.biased = false;
  map.activates = true;
  const Vector x = {-1e4f, -200, -20, 0, 20, 200, 1e4f};
  for (const Activation activation : {Activation::kGelu, Activation::kGeluTanh, Activation::kQuickGelu, Activation::kSilu}) {
    map.activation = activation;
    const Vector y = map(x);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], i < 3 ? 0 : rounded(x[i], GetParam().type), 1e-5 + std::abs(x[i]) * 1e-6);
  }
}

TEST_P(PackedMap, ANonFiniteValueReachesItsRowOnly) {
  const Map map(40, 40, GetParam().type);
  Vector x = random_values(20 * 40, 5);
  const Vector before = map(x);
  x[3 * 40 + 7] = std::nanf("");
  const Vector after = map(x);
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (i / 40 == 3)
      EXPECT_TRUE(std::isnan(after[i]));
    else
      EXPECT_EQ(after[i], before[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PackedMap,
                         testing::Values(Case{"avx2", DataType::kFloat32}, Case{"avx512", DataType::kFloat32}, Case{"avx512", DataType::kBfloat16}),
                         [](const auto& each) {
                           return std::string(each.param.instructions) + (each.param.type == DataType::kFloat32 ? "_float32" : "_bfloat16");
                         });

TEST(PackedMapRefusal, AMachineWithoutTheInstructionsHasNone) {
  ASSERT_TRUE(use_instruction_set("portable"));
  EXPECT_FALSE(has_packed_map(DataType::kFloat32));
  EXPECT_FALSE(packed_map({}, {}).ok());
  use_instruction_set("");
}

}  // namespace
}  // namespace tessera::kernels::cpu
