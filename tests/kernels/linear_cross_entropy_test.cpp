#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/kernels/backend.h"
#include "tests/kernels/sparsify_group_case.h"

namespace tessera::kernels::test {
namespace {

struct TileInputs {
  std::int64_t rows, columns;
  std::vector<float> logits;
  std::vector<std::int64_t> targets;
  std::int64_t places = 1;
  std::vector<float> weights = {};  // empty means all 1
  DataType type = DataType::kFloat32;
};

struct TileResults {
  std::vector<float> losses, gradient;
};

enum class Gradient { kNone, kInPlace, kApart };

/// Returns a random tile in which every third row is ignored.
TileInputs random_tile(std::int64_t rows, std::int64_t columns, float scale = 3.0f) {
  TileInputs in{rows, columns, normal_values(rows * columns, 1), {}};
  for (float& value : in.logits) value *= scale;
  for (std::int64_t row = 0; row < rows; ++row) in.targets.push_back(row % 3 == 2 ? -1 : row * 37 % columns);
  return in;
}

/// Returns a tile with up to `places` target words per row. Some words are equal and adjacent, some places are unused, and
/// every fourth row has no words.
TileInputs random_soft_tile(std::int64_t rows, std::int64_t columns, std::int64_t places) {
  TileInputs in = random_tile(rows, columns);
  in.places = places;
  in.targets.clear();
  in.weights = normal_values(rows * places, 2);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t place = 0; place < places; ++place) {
      const bool unused = row % 4 == 3 || (place + row) % 5 == 4;
      in.targets.push_back(unused ? -1 : std::min(columns - 1, (row + place / 2) * columns / (rows + places)));
    }
  return in;
}

constexpr float kInPadding = NAN;  // what rows contain between their last column and the next row

/// Returns [rows, columns] as rows that begin at multiples of 16 bytes, as the GPU's kernel needs them.
std::vector<float> with_padding(const std::vector<float>& values, std::int64_t rows, std::int64_t columns, std::int64_t pitch) {
  std::vector<float> padded(rows * pitch, kInPadding);
  for (std::int64_t row = 0; row < rows; ++row)
    std::copy_n(values.begin() + row * columns, columns, padded.begin() + row * pitch);
  return padded;
}

std::vector<float> without_padding(const std::vector<float>& padded, std::int64_t rows, std::int64_t columns, std::int64_t pitch) {
  std::vector<float> values;
  for (std::int64_t row = 0; row < rows; ++row)
    values.insert(values.end(), padded.begin() + row * pitch, padded.begin() + row * pitch + columns);
  return values;
}

TileResults run_tile(const Backend& on, const TileInputs& in, Gradient where = Gradient::kApart) {
  const std::int64_t pitch = (in.columns + 7) / 8 * 8;
  auto logits = on.allocate(to_bytes(with_padding(in.logits, in.rows, in.columns, pitch), in.type));
  auto losses = on.allocate(to_bytes(std::vector<float>(in.rows, NAN), DataType::kFloat32));
  auto gradient = on.allocate(to_bytes(std::vector<float>(in.rows * pitch, NAN), in.type));
  std::vector<unsigned char> bytes(in.targets.size() * sizeof(std::int64_t));
  if (!bytes.empty()) std::memcpy(bytes.data(), in.targets.data(), bytes.size());
  auto targets = on.allocate(bytes);
  auto weights = on.allocate(to_bytes(in.weights, DataType::kFloat32));
  CrossEntropyTile call;
  call.places = in.places;
  if (!in.weights.empty()) call.weights = static_cast<const float*>(weights->data());
  call.rows = in.rows;
  call.columns = in.columns;
  call.pitch = pitch;
  call.logits = logits->data();
  call.targets = static_cast<const std::int64_t*>(targets->data());
  call.losses = static_cast<float*>(losses->data());
  if (where != Gradient::kNone) call.gradient = where == Gradient::kInPlace ? logits->data() : gradient->data();
  call.type = in.type;
  expect_ok(on.cross_entropy_tile(call));
  Buffer& result = where == Gradient::kInPlace ? *logits : *gradient;
  return {from_bytes(losses->read(), DataType::kFloat32),
          without_padding(from_bytes(result.read(), in.type), in.rows, in.columns, pitch)};
}

class CrossEntropyTileKernel : public KernelTest {
 protected:
  /// Compares the kernel's results with those of the definition, computed in float64.
  void expect_as_defined(TileInputs in, DataType type) {
    in.type = type;
    in.logits = rounded(in.logits, type);
    SCOPED_TRACE(testing::Message() << in.rows << " x " << in.columns);
    std::vector<double> losses(in.rows), gradient(in.logits.size());
    for (std::int64_t row = 0; row < in.rows; ++row) {
      std::vector<double> target(in.columns);
      bool any = false;
      for (std::int64_t place = row * in.places; place < (row + 1) * in.places; ++place) {
        if (in.targets[place] < 0) continue;
        target[in.targets[place]] += in.weights.empty() ? 1.0 : in.weights[place];
        any = true;
      }
      if (!any) continue;
      const double weight = std::accumulate(target.begin(), target.end(), 0.0);
      const float* const logits = in.logits.data() + row * in.columns;
      const double top = *std::max_element(logits, logits + in.columns);
      double sum = 0;
      for (std::int64_t v = 0; v < in.columns; ++v) sum += std::exp(logits[v] - top);
      losses[row] = weight * (top + std::log(sum));
      for (std::int64_t v = 0; v < in.columns; ++v) {
        if (target[v] != 0) losses[row] -= target[v] * logits[v];
        gradient[row * in.columns + v] = weight * std::exp(logits[v] - top) / sum - target[v];
      }
    }
    const TileResults ours = run_tile(on, in, Gradient::kInPlace);
    expect_close("losses", ours.losses, losses, 1e-6);
    expect_close("gradient", ours.gradient, gradient, type == DataType::kFloat32 ? 1e-6 : 4e-3);
  }
};
INSTANTIATE_TEST_SUITE_P(On, CrossEntropyTileKernel, testing::ValuesIn(backend_names()), test_name<std::string>);

TEST_P(CrossEntropyTileKernel, MatchesTheDefinitionAtManyShapes) {
  const std::int64_t shapes[][2] = {{1, 1},  {1, 2},   {2, 3},   {4, 15},   {3, 16},  {3, 17},   {5, 64},
                                    {2, 67}, {3, 513}, {2, 900}, {2, 2048}, {7, 600}, {1, 20001}, {2, 30522}, {1, 49408}, {1, 70001}};
  for (const auto& [rows, columns] : shapes) {
    for (const DataType type : types()) expect_as_defined(random_tile(rows, columns), type);
  }
}

TEST_P(CrossEntropyTileKernel, SoftTargetOfFewPlacesMatchesTheDefinition) {
  const std::int64_t shapes[][3] = {{1, 1, 1},   {5, 7, 3},    {4, 15, 2},  {3, 64, 9},
                                    {6, 513, 40}, {5, 900, 77}, {2, 4000, 1100}, {1, 12000, 20}};
  for (const auto& [rows, columns, places] : shapes) {
    for (const DataType type : types()) {
      SCOPED_TRACE(places);
      TileInputs in = random_soft_tile(rows, columns, places);
      expect_as_defined(in, type);
      in.weights.clear();
      expect_as_defined(in, type);
    }
  }
}

TEST_P(CrossEntropyTileKernel, SoftTargetOfOnePlaceOfWeightOneMatchesTheHardOne) {
  TileInputs hard = random_tile(7, 333), soft = hard;
  soft.weights.assign(7, 1.0f);
  const TileResults ours = run_tile(on, soft), theirs = run_tile(on, hard);
  EXPECT_EQ(ours.losses, theirs.losses);
  EXPECT_EQ(ours.gradient, theirs.gradient);
}

TEST_P(CrossEntropyTileKernel, DistantLogitsNeitherOverflowNorVanish) {
  for (const float scale : {0.0f, 1e-3f, 50.0f, 1e4f, 1e30f}) {
    for (const DataType type : types()) expect_as_defined(random_tile(4, 300, scale), type);
  }
}

TEST_P(CrossEntropyTileKernel, LogitOfMinusInfinityHasNoShare) {
  TileInputs in = random_tile(2, 50);
  for (const int column : {0, 7, 49}) in.logits[column] = -std::numeric_limits<float>::infinity();
  in.targets = {5, 5};
  expect_as_defined(in, DataType::kFloat32);
}

TEST_P(CrossEntropyTileKernel, GradientMayOverwriteTheLogitsOrBeOmitted) {
  for (const TileInputs& in : {random_tile(5, 701), random_soft_tile(6, 701, 30)}) {
    const TileResults apart = run_tile(on, in, Gradient::kApart), in_place = run_tile(on, in, Gradient::kInPlace),
                      none = run_tile(on, in, Gradient::kNone);
    EXPECT_EQ(in_place.losses, apart.losses);
    EXPECT_EQ(in_place.gradient, apart.gradient);
    EXPECT_EQ(none.losses, apart.losses);
    EXPECT_TRUE(std::all_of(none.gradient.begin(), none.gradient.end(), [](float value) { return std::isnan(value); }));
  }
}

TEST_P(CrossEntropyTileKernel, IgnoredRowIsZeroForAnyContent) {
  for (const float spoiled : {NAN, std::numeric_limits<float>::infinity()}) {
    TileInputs in = random_tile(3, 90);
    std::fill(in.logits.begin() + 2 * 90, in.logits.end(), spoiled);
    const TileResults ours = run_tile(on, in);
    EXPECT_EQ(ours.losses[2], 0.0f);
    EXPECT_EQ(std::vector<float>(ours.gradient.begin() + 2 * 90, ours.gradient.end()), std::vector<float>(90, 0.0f));
  }
}

TEST_P(CrossEntropyTileKernel, NanAnywhereInARowIsNotHidden) {
  for (const int column : {0, 5, 64, 698, 700}) {
    TileInputs in = random_tile(2, 701);
    in.logits[701 + column] = NAN;
    const TileResults ours = run_tile(on, in);
    EXPECT_TRUE(std::isnan(ours.losses[1])) << column;
    EXPECT_TRUE(std::all_of(ours.gradient.begin() + 701, ours.gradient.end(), [](float g) { return std::isnan(g); }));
    EXPECT_FALSE(std::isnan(ours.losses[0]));
  }
}

TEST_P(CrossEntropyTileKernel, NarrowGradientIsRoundedOnceInPlace) {
  if (on_cpu) GTEST_SKIP() << "the CPU has only a float32 kernel";
  TileInputs in = random_soft_tile(4, 301, 40);
  in.type = DataType::kBfloat16;
  in.logits = rounded(in.logits, in.type);
  TileInputs wide = in;
  wide.type = DataType::kFloat32;
  EXPECT_EQ(run_tile(on, in, Gradient::kInPlace).gradient, rounded(run_tile(on, wide).gradient, in.type));
}

TEST_P(CrossEntropyTileKernel, AcceptsNoRows) {
  EXPECT_TRUE(run_tile(on, {0, 40, {}, {}}).losses.empty());
}

TEST_P(CrossEntropyTileKernel, ErrorsNameBadArguments) {
  float value = 0.0f;
  const std::int64_t target = 0;
  const auto message = [&](const CrossEntropyTile& call) { return on.cross_entropy_tile(call).message(); };
  EXPECT_EQ(message({-1, 1, &value, &target, &value}), "linear_cross_entropy: rows must be at least 0, but is -1");
  EXPECT_EQ(message({1, 0, &value, &target, &value}), "linear_cross_entropy: columns must be at least 1, but is 0");
  CrossEntropyTile placeless{1, 1, &value, &target, &value};
  placeless.places = 0;
  EXPECT_EQ(message(placeless), "linear_cross_entropy: places must be at least 1, but is 0");
  EXPECT_EQ(message({1, 1, nullptr, &target, &value}), "linear_cross_entropy: logits is a null pointer");
  EXPECT_EQ(message({1, 1, &value, nullptr, &value}), "linear_cross_entropy: targets is a null pointer");
  EXPECT_EQ(message({1, 1, &value, &target, nullptr}), "linear_cross_entropy: losses is a null pointer");
  CrossEntropyTile overlapping{1, 2, &value, &target, &value};
  overlapping.pitch = 1;
  EXPECT_EQ(message(overlapping), "linear_cross_entropy: the row stride of the tile is 1, shorter than a row of 2 elements");
}

TEST(CrossEntropyTileOnCpu, IsTheSameForAnyNumberOfThreads) {
  const TileInputs in = random_tile(40, 333);
  const TileResults one = run_tile(cpu_backend(1), in), three = run_tile(cpu_backend(3), in);
  EXPECT_EQ(one.losses, three.losses);
  EXPECT_EQ(one.gradient, three.gradient);
}

TEST(CrossEntropyTileOnCpu, RejectsANarrowGradient) {
  float value = 0.0f;
  const std::int64_t target = 0;
  EXPECT_EQ(cpu_backend().cross_entropy_tile({1, 1, &value, &target, &value, &value, DataType::kBfloat16}).message(),
            "linear_cross_entropy: the CPU has only a float32 kernel");
}

TEST(CrossEntropyTileEmulated, RejectsUnalignedRowsAndTooManyPlaces) {
  alignas(16) float values[8] = {};
  const std::int64_t target = 0;
  CrossEntropyTile call{2, 3, values, &target, values, values};
  EXPECT_EQ(emulation_backend().cross_entropy_tile(call).message(),
            "linear_cross_entropy: the rows of logits and gradient must begin at multiples of 16 bytes");
  call.pitch = 4;
  call.places = 8193;
  EXPECT_EQ(emulation_backend().cross_entropy_tile(call).message(),
            "linear_cross_entropy: a row may have at most 8192 places, but has 8193");
}

TEST(CrossEntropyTileEmulated, ReverseThreadOrderChangesNothing) {
  for (const TileInputs& in : {random_tile(4, 1500), random_soft_tile(4, 1500, 600)}) {
    const auto tile = [&] { return run_tile(emulation_backend(), in, Gradient::kInPlace); };
    const TileResults forward = tile(), reverse = in_reverse_order(tile);
    EXPECT_EQ(reverse.losses, forward.losses);
    EXPECT_EQ(reverse.gradient, forward.gradient);
  }
}

}  // namespace
}  // namespace tessera::kernels::test
