// Tests the instructions of kernels/device/hopper.h with an example of a kernel, and that the emulation finds the mistakes that it is meant
// to find.
#define TESSERA_CUDA_EMULATION
#include "kernels/device/hopper.h"

#include <cmath>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "tests/kernels/backend.h"
#include "tests/kernels/product_hopper.h"

namespace tessera::kernels::test {
namespace {

bool runs_hopper_kernels([[maybe_unused]] const std::string& backend) {
#if defined(TESSERA_TEST_CUDA)
  if (backend == "cuda") return cuda::runs_hopper_kernels();
#endif
  return emulation::runs_hopper_kernels();
}
Status multiply_on([[maybe_unused]] const std::string& backend, const HopperProduct& product, int block_columns) {
#if defined(TESSERA_TEST_CUDA)
  if (backend == "cuda") return cuda::hopper_product(product, block_columns);
#endif
  return emulation::hopper_product(product, block_columns);
}

class HopperProducts : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!runs_hopper_kernels(GetParam())) GTEST_SKIP() << "the GPU is not of compute capability 9.0";
  }
  void expect_right(HopperProduct product, int block_columns) const;
};
INSTANTIATE_TEST_SUITE_P(On, HopperProducts, testing::ValuesIn(device_backend_names()), test_name<std::string>);

void HopperProducts::expect_right(HopperProduct product, int block_columns) const {
  const auto [M, N, K] = std::tuple(product.rows, product.columns, product.depth);
  std::vector<float> a(M * K), b(N * K);  // whole numbers, so that all sums and results are exact
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(static_cast<int>(i * 37 % 11) - 5);
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i * 23 % 13 == 0 ? 1 : 0);
  std::vector<float> expected(M * N);
  for (std::int64_t i = 0; i < M; ++i) {
    for (std::int64_t j = 0; j < N; ++j) {
      float sum = 0.0f;
      for (std::int64_t k = 0; k < K; ++k) {
        sum += a[product.a_depth == Depth::kAlongRows ? i * K + k : k * M + i] *
               b[product.b_depth == Depth::kAlongRows ? j * K + k : k * N + j];
      }
      expected[product.c_transposed ? j * M + i : i * N + j] = sum;
    }
  }
  const Backend on = backend(GetParam());
  const auto type = DataType::kBfloat16;
  auto a_memory = on.allocate(to_bytes(a, type)), b_memory = on.allocate(to_bytes(b, type));
  auto c_memory = on.allocate(to_bytes(std::vector<float>(M * N, NAN), type));
  product.a = a_memory->data();
  product.b = b_memory->data();
  product.c = c_memory->data();
  expect_ok(multiply_on(GetParam(), product, block_columns));
  EXPECT_EQ(from_bytes(c_memory->read(), type), expected);
}

TEST_P(HopperProducts, EveryLayoutMatchesTheDefinition) {
  constexpr Depth kAlong = Depth::kAlongRows, kAcross = Depth::kAcrossRows;
  constexpr struct {
    Operands operands;
    Depth a, b;
  } kinds[] = {{Operands::kTiles, kAlong, kAlong},   {Operands::kTiles, kAlong, kAcross},    {Operands::kTiles, kAcross, kAlong},
               {Operands::kTiles, kAcross, kAcross}, {Operands::kRegisters, kAlong, kAlong}, {Operands::kRegisters, kAlong, kAcross},
               {Operands::kBlocks, kAcross, kAlong}, {Operands::kBlocks, kAcross, kAcross}};
  for (const auto& [operands, a, b] : kinds) {
    for (const int block_columns : {56, 200}) {
      for (const bool c_transposed : {false, true}) {
        SCOPED_TRACE(testing::Message() << static_cast<int>(operands) << static_cast<int>(a) << static_cast<int>(b) << " " << block_columns
                                        << (c_transposed ? " transposed" : ""));
        HopperProduct product;
        product.rows = 136;
        product.columns = block_columns + 16;
        product.depth = 216;
        product.a_depth = a;
        product.b_depth = b;
        product.operands = operands;
        product.c_transposed = c_transposed;
        expect_right(product, block_columns);
      }
    }
  }
}

TEST(HopperProductsEmulated, DoNotDependOnTheOrderOfThreads) {
  HopperProduct product;
  product.rows = 128;
  product.columns = 56;
  product.depth = 320;
  const std::vector<std::uint16_t> a(128 * 320, 0x3f80), b(56 * 320, 0x4000);
  const auto results = [&] {
    std::vector<std::uint16_t> c(128 * 56);
    product.a = a.data();
    product.b = b.data();
    product.c = c.data();
    expect_ok(multiply_on("emulation", product, 56));
    return c;
  };
  EXPECT_EQ(results(), std::vector<std::uint16_t>(128 * 56, 0x4420));
  EXPECT_EQ(in_reverse_order(results), results());
}

TEST(TileMaps, FaultsAreNamed) {
  alignas(16) static const std::uint16_t memory[64] = {};
  TileMap map;
  const auto message = [&](auto change) {
    TileSource source = {memory, 64, 8, 1, 1, 64, 0, 0};
    int box_rows = 8;
    change(source, box_rows);
    return make_tile_map(map, "example", source, box_rows).message();
  };
  EXPECT_EQ(message([](auto&, auto&) {}), "");
  EXPECT_EQ(message([](auto& source, auto&) { source.data = memory + 1; }), "example: the array must begin at a multiple of 16 bytes");
  EXPECT_EQ(message([](auto& source, auto&) { source.row_stride = 60; }), "example: each stride must be a positive multiple of 16 bytes");
  EXPECT_EQ(message([](auto& source, auto&) { source.batches = 2; }), "example: each stride must be a positive multiple of 16 bytes");
  EXPECT_EQ(message([](auto& source, auto&) { source.rows = 0; }), "example: each size must be at least 1 and at most 2^31");
  EXPECT_EQ(message([](auto&, auto& box_rows) { box_rows = 257; }), "example: a box must have 1 to 256 rows");
}

// ---- Mistakes ----

constexpr std::size_t kShared = 4 * 1024 * 8;
constexpr int kRows = 64;  // of the tiles below
constexpr unsigned kBytes = kRows * kTileRowBytes;

/// A bfloat16 array [64, 128] of small whole numbers.
const TileMap& example_map() {
  static std::vector<std::uint16_t> values;
  static TileMap map;
  if (!values.empty()) return map;
  for (int i = 0; i < kRows * 128; ++i) values.push_back(float_to_bfloat16(static_cast<float>((i / 128 + 3 * (i % 128)) % 7 - 3)));
  expect_ok(make_tile_map(map, "example", {values.data(), 128, kRows, 1, 1, 128, 0, 0}, kRows));
  return map;
}

float value_at(const unsigned char* tile, int row, int column) {
  std::uint16_t bits;
  std::memcpy(&bits, tile + tile_offset(row, column), 2);
  return bfloat16_to_float(bits);
}

struct Shared {
  unsigned char* tile;  // two tiles of 64 rows
  Barrier* barrier;
};
Shared shared_parts() {
  unsigned char* const memory = emulation::dynamic_shared();
  return {memory, reinterpret_cast<Barrier*>(memory + 2 * kBytes)};
}

/// Runs a kernel with a warpgroup that starts a barrier for one arrival and then calls body(parts).
template <class Body>
void run_warpgroup(const Body& body) {
  const TileMap& map = example_map();
  (void)map;
  emulation::run(dim3(1), dim3(kWarpgroup), kShared, [&] {
    const Shared parts = shared_parts();
    if (threadIdx.x == 0) parts.barrier->start(1);
    __syncthreads();
    body(parts);
  });
}

void load_two_tiles(const Shared& parts, unsigned bytes = 2 * kBytes) {
  if (threadIdx.x != 0) return;
  parts.barrier->expect(bytes);
  load_tile(parts.tile, example_map(), *parts.barrier, {0, 0, 0, 0}, Keep::kLong);
  load_tile(parts.tile + kBytes, example_map(), *parts.barrier, {64, 0, 0, 0}, Keep::kLong);
}

using Sums = float[32];  // of a product [64, 64]

/// Multiplies the first tile with the second one, with the depth along the rows of both. Returns one of the results.
template <class Before>
float product_of_tiles(Before before_wait, int b_step = kAlongRowsStep) {
  float result = 0.0f;
  run_warpgroup([&](const Shared& parts) {
    load_two_tiles(parts);
    parts.barrier->wait(0);
    Sums sums;
    fence_products(sums);
    for (int k = 0; k < 4; ++k) {
      multiply<Depth::kAlongRows, Depth::kAlongRows>(sums, tile_operand(parts.tile).after(k * kAlongRowsStep),
                                                     tile_operand(parts.tile + kBytes).after(k * b_step), k > 0);
    }
    commit_products();
    before_wait(sums, parts);
    wait_for_products<0>(sums);
    if (threadIdx.x == 77) result = sums[9];
  });
  return result;
}

TEST(HopperEmulation, ElementsOutsideOfTheArrayAreZeros) {
  float outside = NAN, inside = NAN;
  run_warpgroup([&](const Shared& parts) {
    if (threadIdx.x == 0) {
      parts.barrier->expect(kBytes);
      load_tile(parts.tile, example_map(), *parts.barrier, {100, -3, 0, 0}, Keep::kLong);
    }
    parts.barrier->wait(0);
    outside = value_at(parts.tile, 2, 0) + value_at(parts.tile, 5, 28);
    inside = value_at(parts.tile, 4, 2);
  });
  EXPECT_EQ(outside, 0.0f);
  EXPECT_EQ(inside, static_cast<float>((1 + 3 * 102) % 7 - 3));
}

TEST(HopperEmulation, TileReadBeforeTheWaitIsNan) {
  float before = 0.0f, after = 0.0f;
  run_warpgroup([&](const Shared& parts) {
    load_two_tiles(parts);
    __syncthreads();
    before = value_at(parts.tile, 3, 5);
    __syncthreads();
    parts.barrier->wait(0);
    after = value_at(parts.tile, 3, 5);
  });
  EXPECT_TRUE(std::isnan(before));
  EXPECT_EQ(after, static_cast<float>((3 + 15) % 7 - 3));
}

TEST(HopperEmulation, TileThatIsFilledAgainTooEarlyIsNan) {
  float value = 0.0f;
  run_warpgroup([&](const Shared& parts) {
    load_two_tiles(parts);
    parts.barrier->wait(0);
    __syncthreads();
    load_two_tiles(parts);  // without waiting until all threads have read the first tiles
    __syncthreads();
    if (threadIdx.x == 5) value = value_at(parts.tile, 3, 5);
    __syncthreads();
    parts.barrier->wait(1);
  });
  EXPECT_TRUE(std::isnan(value));
}

TEST(HopperEmulation, SumsAreNanUntilTheWait) {
  float before = 0.0f;
  const float right = product_of_tiles([&](Sums& sums, const Shared&) {
    if (threadIdx.x == 77) before = sums[9];
  });
  EXPECT_TRUE(std::isnan(before));
  float expected = 0.0f;  // in this thread's row and column
  const int row = sum_row(77, 9), column = sum_column(77, 9);
  for (int k = 0; k < 64; ++k) {
    expected += static_cast<float>(((row + 3 * k) % 7 - 3) * ((column + 3 * (64 + k)) % 7 - 3));
  }
  EXPECT_EQ(right, expected);
}

TEST(HopperEmulation, WrongLayoutAndOperandsChangedBeforeTheWaitGiveOtherResults) {
  const auto nothing = [](Sums&, const Shared&) {};
  const float right = product_of_tiles(nothing);
  EXPECT_NE(product_of_tiles(nothing, /*b_step=*/16), right);
  EXPECT_NE(product_of_tiles([](Sums&, const Shared& parts) {
              if (threadIdx.x == 0) std::memset(parts.tile, 0, kBytes);
            }),
            right);
}

TEST(HopperEmulation, StoreReadsTheTileAtTheWait) {
  std::vector<std::uint16_t> stored(kRows * 64);
  TileMap map;
  expect_ok(make_tile_map(map, "example", {stored.data(), 64, kRows, 1, 1, 64, 0, 0}, kRows));
  run_warpgroup([&](const Shared& parts) {
    std::memset(parts.tile + threadIdx.x * 64, 0x11, 64);
    fence_for_copies();
    __syncthreads();
    if (threadIdx.x == 0) {
      store_tile(map, parts.tile, {0, 0, 0, 0});
      commit_stores();
      std::memset(parts.tile, 0x22, 2);  // too early
      wait_for_stores<0>();
      std::memset(parts.tile, 0x33, 2);
    }
  });
  EXPECT_EQ(stored[0], 0x2222);
  EXPECT_EQ(stored[1], 0x1111);
}

using HopperEmulationDeathTest = testing::Test;
#define EXPECT_STOP(message, ...)                      \
  EXPECT_DEATH(run_warpgroup([](const Shared& parts) { \
                 __VA_ARGS__;                          \
                 (void)parts;                          \
               }),                                     \
               message)

TEST(HopperEmulationDeathTest, WrongNumbersOfArrivalsAndBytes) {
  EXPECT_STOP("deadlock.*waits for 1 arrivals and 0 bytes", parts.barrier->wait(0));
  EXPECT_STOP("deadlock.*waits for 0 arrivals and 128 bytes", load_two_tiles(parts, 2 * kBytes + 128); parts.barrier->wait(0));
  EXPECT_STOP("copies bring 16384 bytes, but their barrier expects 16256", load_two_tiles(parts, 2 * kBytes - 128); parts.barrier->wait(0));
  EXPECT_STOP("more arrivals than a barrier expects", {
    if (threadIdx.x == 0) parts.barrier->expect(128);
    if (threadIdx.x == 0) parts.barrier->arrive();
  });
  EXPECT_STOP("used before its initialization", parts.barrier[1].wait(0));
  EXPECT_STOP("memory of a barrier was overwritten", std::memset(parts.barrier, 0, 8); parts.barrier->arrive());
  EXPECT_STOP("named barrier 3 has 96 of 128 threads", if (threadIdx.x >= 32) named_barrier<3>(kWarpgroup));
  EXPECT_STOP("others never reached", if (threadIdx.x >= 32) arrive_at_named_barrier<3>(kWarpgroup));
}

TEST(HopperEmulationDeathTest, WaitsThatAreMissing) {
  EXPECT_STOP("without waiting for its copies", load_two_tiles(parts));
  EXPECT_STOP("without waiting for its stores", store_tile(example_map(), parts.tile, {0, 0, 0, 0}); commit_stores());
  EXPECT_STOP("without waiting for its products", Sums sums; fence_products(sums);
              multiply<Depth::kAlongRows, Depth::kAlongRows>(sums, tile_operand(parts.tile), tile_operand(parts.tile), false);
              commit_products());
}

TEST(HopperEmulationDeathTest, AddressesThatAreNotAligned) {
  EXPECT_STOP("not a multiple of its size", load_tile(parts.tile + 64, example_map(), *parts.barrier, {0, 0, 0, 0}, Keep::kLong));
  EXPECT_STOP("must begin at a multiple of 1024", Sums sums; fence_products(sums);
              multiply<Depth::kAlongRows, Depth::kAlongRows>(sums, tile_operand(parts.tile), tile_operand(parts.tile + 128), false));
  EXPECT_STOP("ends outside", load_tile(parts.tile + kShared - 1024, example_map(), *parts.barrier, {0, 0, 0, 0}, Keep::kLong));
  EXPECT_STOP("outside of the block's shared memory", tile_operand(&parts));
}

TEST(HopperEmulationDeathTest, ProductsThatAWarpgroupDoesNotShare) {
  EXPECT_STOP("a product without fence_products", Sums sums;
              multiply<Depth::kAlongRows, Depth::kAlongRows>(sums, tile_operand(parts.tile), tile_operand(parts.tile), false));
  EXPECT_STOP(
      "not all threads of a warpgroup", if (threadIdx.x >= 32) {
        Sums sums;
        fence_products(sums);
        multiply<Depth::kAlongRows, Depth::kAlongRows>(sums, tile_operand(parts.tile), tile_operand(parts.tile), false);
        commit_products();
        wait_for_products<0>(sums);
      });
  EXPECT_STOP("compute different products", Sums sums; fence_products(sums); multiply<Depth::kAlongRows, Depth::kAlongRows>(
                  sums, tile_operand(parts.tile), tile_operand(parts.tile).after(threadIdx.x < 32 ? 0 : 32), false);
              commit_products(); __syncthreads(); wait_for_products<0>(sums));
  EXPECT_DEATH(product_of_tiles([](Sums& sums, const Shared&) { sums[9] = 0.0f; }), "sums of a product were changed before the wait");
}

}  // namespace
}  // namespace tessera::kernels::test
