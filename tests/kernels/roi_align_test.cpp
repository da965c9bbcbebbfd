#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "tests/kernels/backend.h"
#include "tests/kernels/sparsify_group_case.h"

namespace tessera::kernels::test {
namespace {

struct Case {
  RoiAlignProblem problem;  // its pointers are not set
  std::vector<float> features, corners, gradient;
  std::vector<std::int64_t> image;

  std::int64_t outputs() const { return problem.boxes * problem.bin_rows * problem.bin_columns * problem.channels; }
};

/// Returns a case with boxes of all kinds: inside the image, across its borders, far outside, of width 0, with swapped corners,
/// and as large as the image.
Case random_case(std::int64_t images, std::int64_t height, std::int64_t width, std::int64_t channels,
                 std::int64_t boxes) {
  Case out;
  out.problem = {images, height, width, channels, boxes, 2, 3};
  out.features = normal_values(images * height * width * channels, 1);
  std::mt19937 random(7);
  const auto within = [&](double low, double high) {
    return static_cast<float>(std::uniform_real_distribution<double>(low, high)(random));
  };
  const auto h = static_cast<float>(height), w = static_cast<float>(width);
  for (std::int64_t box = 0; box < boxes; ++box) {
    out.image.push_back(box * 5 % images);
    float left = within(-3, w), top = within(-3, h), right = left + within(0, 1.3 * w),
          bottom = top + within(0, 1.3 * h);
    if (box % 6 == 1) left = 0, top = 0, right = w, bottom = h;
    if (box % 6 == 2) right = left;
    if (box % 6 == 3) std::swap(left, right), std::swap(top, bottom);
    if (box % 12 == 4) left += 3 * w, right += 3 * w;
    out.corners.insert(out.corners.end(), {left, top, right, bottom});
  }
  out.gradient = normal_values(out.outputs(), 2);
  return out;
}

struct Corner {
  std::int64_t y, x;
  double weight;
};

/// Returns the cells around a point and their bilinear weights (Mask R-CNN, section 3).
std::vector<Corner> cells_around(double y, double x, const RoiAlignProblem& p) {
  const auto height = static_cast<double>(p.height), width = static_cast<double>(p.width);
  if (y < -1 || y > height || x < -1 || x > width) return {};
  y = std::clamp(y, 0.0, height - 1);
  x = std::clamp(x, 0.0, width - 1);
  const auto top = static_cast<std::int64_t>(y), left = static_cast<std::int64_t>(x);
  const std::int64_t bottom = std::min(top + 1, p.height - 1), right = std::min(left + 1, p.width - 1);
  const double down = y - static_cast<double>(top), across = x - static_cast<double>(left);
  return {{top, left, (1 - down) * (1 - across)},
          {top, right, (1 - down) * across},
          {bottom, left, down * (1 - across)},
          {bottom, right, down * across}};
}

/// Calls visit(output, cell, weight) for each bin, each sampling point in the bin, and each cell around the point. `output` and `cell` are
/// indices in units of C values (one vector of channels).
template <class Visit>
void for_each_share(const Case& c, Visit visit) {
  const RoiAlignProblem& p = c.problem;
  for (std::int64_t box = 0; box < p.boxes; ++box) {
    const float* const corners = c.corners.data() + box * 4;
    const double shift = p.aligned ? 0.5 : 0.0, left = corners[0] - shift, top = corners[1] - shift;
    double width = corners[2] - shift - left, height = corners[3] - shift - top;
    if (!p.aligned) width = std::max(width, 1.0), height = std::max(height, 1.0);
    const double bin_height = height / static_cast<double>(p.bin_rows),
                 bin_width = width / static_cast<double>(p.bin_columns);
    const int rows =
        p.sampling_ratio > 0 ? static_cast<int>(p.sampling_ratio) : static_cast<int>(std::ceil(bin_height));
    const int columns =
        p.sampling_ratio > 0 ? static_cast<int>(p.sampling_ratio) : static_cast<int>(std::ceil(bin_width));
    for (std::int64_t bin = 0; bin < p.bin_rows * p.bin_columns; ++bin)
      for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; ++j) {
          const double y = top + (static_cast<double>(bin / p.bin_columns) + (i + 0.5) / rows) * bin_height;
          const double x = left + (static_cast<double>(bin % p.bin_columns) + (j + 0.5) / columns) * bin_width;
          for (const Corner& at : cells_around(y, x, p))
            visit(box * p.bin_rows * p.bin_columns + bin, (c.image[box] * p.height + at.y) * p.width + at.x,
                  at.weight / (rows * columns));
        }
  }
}

std::vector<double> expected_forward(const Case& c) {
  const std::int64_t channels = c.problem.channels;
  std::vector<double> out(static_cast<std::size_t>(c.outputs()));
  for_each_share(c, [&](std::int64_t output, std::int64_t cell, double weight) {
    for (std::int64_t i = 0; i < channels; ++i) out[output * channels + i] += weight * c.features[cell * channels + i];
  });
  return out;
}

std::vector<double> expected_backward(const Case& c) {
  const std::int64_t channels = c.problem.channels;
  std::vector<double> out(c.features.size());
  for_each_share(c, [&](std::int64_t output, std::int64_t cell, double weight) {
    for (std::int64_t i = 0; i < channels; ++i) out[cell * channels + i] += weight * c.gradient[output * channels + i];
  });
  return out;
}

template <class T>
std::vector<unsigned char> bytes_of(const std::vector<T>& values) {
  const auto* const bytes = reinterpret_cast<const unsigned char*>(values.data());
  return {bytes, bytes + values.size() * sizeof(T)};
}

class RoiAlignKernel : public KernelTest {
 protected:
  /// Returns an output buffer that is NaN until the kernel writes it.
  std::unique_ptr<Buffer> unwritten(std::size_t count, DataType type) {
    return on.allocate(std::vector<unsigned char>(count * size_of(type), 0xff));
  }

  std::vector<float> forward(Case c, Status* status = nullptr) {
    const DataType type = c.problem.type;
    const auto features = on.allocate(to_bytes(c.features, type)),
               corners = on.allocate(to_bytes(c.corners, DataType::kFloat32)), image = on.allocate(bytes_of(c.image)),
               out = unwritten(static_cast<std::size_t>(c.outputs()), type),
               memory = unwritten(roi_align_workspace(c.problem) / 4, DataType::kFloat32);
    c.problem.corners = static_cast<const float*>(corners->data());
    c.problem.image = static_cast<const std::int64_t*>(image->data());
    const Status done = on.roi_align_forward({c.problem, features->data(), out->data(), memory->data()});
    EXPECT_TRUE(status != nullptr || done.ok()) << done.message();
    if (status != nullptr) *status = done;
    return from_bytes(out->read(), type);
  }

  std::vector<float> backward(Case c) {
    RoiAlignProblem& p = c.problem;
    std::vector<std::int64_t> order(static_cast<std::size_t>(p.boxes)), first;
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return c.image[a] < c.image[b]; });
    for (std::int64_t image = 0; image <= p.images; ++image)
      first.push_back(std::count_if(c.image.begin(), c.image.end(), [&](auto of) { return of < image; }));
    const auto gradient = on.allocate(to_bytes(c.gradient, p.type)),
               corners = on.allocate(to_bytes(c.corners, DataType::kFloat32)), image = on.allocate(bytes_of(c.image)),
               by_image = on.allocate(bytes_of(order)), starts = on.allocate(bytes_of(first)),
               out = unwritten(c.features.size(), p.type),
               memory = unwritten(roi_align_workspace(p) / 4, DataType::kFloat32);
    p.corners = static_cast<const float*>(corners->data());
    p.image = static_cast<const std::int64_t*>(image->data());
    expect_ok(on.roi_align_backward({p, static_cast<const std::int64_t*>(by_image->data()),
                                     static_cast<const std::int64_t*>(starts->data()), gradient->data(), out->data(),
                                     memory->data()}));
    return from_bytes(out->read(), p.type);
  }

  void expect_definition(const Case& c, double tolerance) {
    expect_close("forward", forward(c), expected_forward(c), tolerance);
    expect_close("backward", backward(c), expected_backward(c), tolerance);
  }
};

INSTANTIATE_TEST_SUITE_P(On, RoiAlignKernel, testing::ValuesIn(backend_names()), test_name<std::string>);

TEST_P(RoiAlignKernel, MatchesItsDefinitionForwardAndBackward) {
  const std::int64_t shapes[][5] = {{1, 1, 1, 1, 6}, {2, 4, 7, 5, 13}, {3, 9, 6, 33, 24}, {4, 3, 5, 130, 2}};
  for (const auto& [images, height, width, channels, boxes] : shapes)
    for (const std::int64_t ratio : {0, 1, 2, 5})
      for (const bool aligned : {true, false}) {
        SCOPED_TRACE(testing::Message() << height << " x " << width << ", ratio " << ratio << ", aligned " << aligned);
        Case c = random_case(images, height, width, channels, boxes);
        c.problem.sampling_ratio = ratio;
        c.problem.aligned = aligned;
        expect_definition(c, 2e-6);
      }
}

TEST_P(RoiAlignKernel, SumsBfloat16InFloat) {
  Case c = random_case(3, 9, 6, 33, 24);
  c.problem.type = DataType::kBfloat16;
  c.features = rounded(c.features, DataType::kBfloat16);
  c.gradient = rounded(c.gradient, DataType::kBfloat16);
  expect_definition(c, 4e-3);
  Case wide = c;
  wide.problem.type = DataType::kFloat32;
  EXPECT_EQ(forward(c), rounded(forward(wide), DataType::kBfloat16));
  EXPECT_EQ(backward(c), rounded(backward(wide), DataType::kBfloat16));
}

TEST_P(RoiAlignKernel, ManyBoxesOfOneImageAddUpAndOtherImagesGetNothing) {
  Case c = random_case(3, 5, 5, 8, 300);
  std::fill(c.image.begin(), c.image.end(), 1);
  expect_definition(c, 2e-6);
  const std::vector<float> gradient = backward(c);
  EXPECT_TRUE(std::all_of(gradient.begin(), gradient.begin() + 200, [](float g) { return g == 0; }));
  EXPECT_TRUE(std::all_of(gradient.end() - 200, gradient.end(), [](float g) { return g == 0; }));
}

TEST_P(RoiAlignKernel, WholeImageInOneBinIsItsMean) {
  Case c = random_case(1, 4, 6, 3, 1);
  c.problem.bin_rows = c.problem.bin_columns = 1;
  c.corners = {0, 0, 6, 4};
  std::vector<double> mean(3);
  for (std::size_t i = 0; i < c.features.size(); ++i) mean[i % 3] += c.features[i] / 24.0;
  expect_close("mean", forward(c), mean, 1e-6);
}

TEST_P(RoiAlignKernel, TimeForAHugeBoxIsBoundedByTheImage) {
  Case c = random_case(1, 4, 6, 3, 3);
  c.corners = {-1e30f, -1e30f, 1e30f, 1e30f, -3e7f, -1e7f, 1e7f, 4e7f, 1e30f, 1e30f, 1.1e30f, 1.1e30f};
  for (const float value : forward(c)) EXPECT_TRUE(std::isfinite(value));
  for (const float value : backward(c)) EXPECT_TRUE(std::isfinite(value));
}

TEST_P(RoiAlignKernel, OnlyANonFiniteBoxGivesNan) {
  Case c = random_case(2, 4, 6, 3, 4);
  c.image = {0, 1, 0, 0};
  c.corners[4 + 2] = NAN;
  c.corners[4 + 1] = c.corners[4 + 3] = 50;  // moves box 1 below the image
  const std::vector<float> out = forward(c), gradient = backward(c);
  for (std::int64_t i = 0; i < c.outputs(); ++i) EXPECT_EQ(std::isnan(out[i]), i / (c.outputs() / 4) == 1) << i;
  for (std::size_t i = 0; i < gradient.size(); ++i) EXPECT_EQ(std::isnan(gradient[i]), i >= gradient.size() / 2) << i;
}

TEST_P(RoiAlignKernel, WithoutBoxesTheGradientIsZero) {
  const Case c = random_case(2, 3, 3, 4, 0);
  EXPECT_TRUE(forward(c).empty());
  EXPECT_EQ(backward(c), std::vector<float>(c.features.size(), 0.0f));
}

TEST_P(RoiAlignKernel, DoesNotDependOnRunOrThreadOrder) {
  const Case c = random_case(3, 9, 6, 33, 40);
  const std::vector<float> out = forward(c), gradient = backward(c);
  EXPECT_EQ(in_reverse_order([&] { return forward(c); }), out);
  EXPECT_EQ(in_reverse_order([&] { return backward(c); }), gradient);
  if (GetParam() != "cpu") return;
  on = cpu_backend(5);
  EXPECT_EQ(forward(c), out);
  EXPECT_EQ(backward(c), gradient);
}

TEST_P(RoiAlignKernel, BoxOfAnUnknownImageIsAnErrorOrNan) {
  Case c = random_case(2, 4, 6, 3, 4);
  c.image = {0, 1, 2, -1};
  Status status;
  const std::vector<float> out = forward(c, &status);
  if (GetParam().starts_with("cpu")) {
    EXPECT_EQ(status.message(), "roi_align: box 2 belongs to image 2, but there are 2 images");
    return;
  }
  EXPECT_TRUE(status.ok());
  for (std::int64_t i = 0; i < c.outputs(); ++i) EXPECT_EQ(std::isnan(out[i]), i / (c.outputs() / 4) >= 2) << i;
}

TEST_P(RoiAlignKernel, ErrorsNameBadArguments) {
  RoiAlignForward forward;
  EXPECT_EQ(on.roi_align_forward(forward).message(), "roi_align: images must be in 1..1073741824, but is 0");
  forward.problem = {1, 1, 1, 1, 1, 0, 1};
  EXPECT_EQ(on.roi_align_forward(forward).message(), "roi_align: bin_rows must be in 1..1073741824, but is 0");
  forward.problem.bin_rows = 1;
  EXPECT_EQ(on.roi_align_forward(forward).message(), "roi_align: corners is a null pointer");
  RoiAlignBackward backward;
  backward.problem = {1, 1, 1, 1, 0};
  EXPECT_EQ(on.roi_align_backward(backward).message(), "roi_align: first is a null pointer");
}

}  // namespace
}  // namespace tessera::kernels::test
