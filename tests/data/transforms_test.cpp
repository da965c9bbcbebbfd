#include <cmath>
#include <filesystem>
#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <opencv2/imgcodecs.hpp>

#include "src/data/image/decode.h"
#include "src/data/image/image_file.h"
#include "src/data/image/raster_files.h"
#include "src/data/image/orientation.h"
#include "src/data/image/resample.h"
#include "src/data/image/resample_loops.h"
#include "src/foreign/foreign_model.h"
#include "tests/data/images.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/golden.h"
#include "tests/support/test_data.h"
#include <tessera/data/image/transforms.h>
#include <tessera/data/source.h>
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>

namespace tessera {
namespace {

Image image_of(const at::Tensor& rgb) {
  const at::Tensor flat = rgb.contiguous();
  const auto* begin = flat.data_ptr<std::uint8_t>();
  return {flat.size(0), flat.size(1), {begin, begin + flat.numel()}};
}

at::Tensor tensor_of(const Image& image) {
  return at::tensor(at::ArrayRef<std::uint8_t>(image.pixels), at::kByte).view({image.height, image.width, 3});
}

class GoldenTransforms : public testing::TestWithParam<std::string> {};
TEST_P(GoldenTransforms, Agrees) { expect_case_agrees(GetParam(), probe::all_runners()); }
INSTANTIATE_TEST_SUITE_P(Cases, GoldenTransforms, testing::ValuesIn(golden_cases("transforms")), golden_name);

// Computes the weights of output pixel `i` from their definition in double precision, without the shortcuts of resample.cpp.
std::vector<double> slow_weights(std::int64_t n_in, std::int64_t n_out, std::int64_t i, bool cubic) {
  const double scale = static_cast<double>(n_in) / static_cast<double>(n_out), segment = std::max(scale, 1.0);
  const double support = segment * (cubic ? 2 : 1), center = (static_cast<double>(i) + 0.5) * scale;
  std::vector<double> w(static_cast<std::size_t>(n_in), 0.0);
  double sum = 0;
  for (auto j = std::max<std::int64_t>(static_cast<std::int64_t>(center - support + 0.5), 0);
       j < std::min(static_cast<std::int64_t>(center + support + 0.5), n_in); ++j) {
    const double x = std::abs((static_cast<double>(j) - center + 0.5) * (1.0 / segment));
    double f = cubic ? (x < 1   ? (1.5 * x - 2.5) * x * x + 1
                        : x < 2 ? (((x - 5) * x + 8) * x - 4) * -0.5
                                : 0)
                     : std::max(0.0, 1 - x);
    w[static_cast<std::size_t>(j)] = f;
    sum += f;
  }
  for (double& each : w) each = std::trunc(each / sum * 4194304.0 + (each < 0 ? -0.5 : 0.5));
  return w;
}

Image slow_axis(const Image& in, std::int64_t n_out, bool vertical, bool cubic) {
  Image out = vertical ? Image{n_out, in.width, {}} : Image{in.height, n_out, {}};
  out.pixels.assign(static_cast<std::size_t>(out.height * out.width * 3), 0);
  for (std::int64_t i = 0; i < n_out; ++i) {
    const auto w = slow_weights(vertical ? in.height : in.width, n_out, i, cubic);
    for (std::int64_t o = 0; o < (vertical ? in.width : in.height); ++o)
      for (std::int64_t c = 0; c < 3; ++c) {
        double sum = 2097152;
        for (std::size_t j = 0; j < w.size(); ++j)
          sum += w[j] *
                 in.pixels[static_cast<std::size_t>(vertical ? (static_cast<std::int64_t>(j) * in.width + o) * 3 + c
                                                             : (o * in.width + static_cast<std::int64_t>(j)) * 3 + c)];
        const auto at = static_cast<std::size_t>(vertical ? (i * in.width + o) * 3 + c : (o * n_out + i) * 3 + c);
        out.pixels[at] = static_cast<std::uint8_t>(std::clamp(std::floor(sum / 4194304.0), 0.0, 255.0));
      }
  }
  return out;
}

TEST(Transforms, ResizeMatchesTheDefinitionForRandomSizes) {
  Random random(1, Purpose::shapes);
  for (int round = 0; round < 60; ++round) {
    const Image in = test::noise(1 + random.below(60), 1 + random.below(60), static_cast<std::uint64_t>(round));
    const std::int64_t h = 1 + random.below(60), w = 1 + random.below(60);
    const bool cubic = random.chance(0.5);
    const std::int64_t removed = in.height - h;
    const bool height_first = removed > 0 && removed > 2 * (in.width - w) && in.width != w;
    Image expected = in;
    if (height_first) expected = slow_axis(expected, h, true, cubic);
    if (in.width != w) expected = slow_axis(expected, w, false, cubic);
    if (!height_first && in.height != h) expected = slow_axis(expected, h, true, cubic);
    const Image out = resize(in, h, w, cubic ? "bicubic" : "bilinear");
    ASSERT_EQ(out.pixels, expected.pixels)
        << in.height << "x" << in.width << " -> " << h << "x" << w << (cubic ? " bicubic" : " bilinear");
  }
}

TEST(Transforms, VectorizedLoopsProduceTheBytesOfThePortableOnes) {
  Random random(2, Purpose::shapes);
  const ResampleLoops fast = resample_loops(), portable = portable_resample_loops();
  for (int round = 0; round < 50; ++round) {
    ResampleWeights w;
    w.outputs = 1 + random.below(40);
    const std::int64_t inputs = 12 + random.below(40);
    w.taps = 12;
    w.values.assign(static_cast<std::size_t>(w.outputs * w.taps), 0);
    for (std::int64_t i = 0; i < w.outputs; ++i) {
      w.count.push_back(1 + random.below(11));
      w.first.push_back(random.below(inputs - w.count.back() + 1));
      for (std::int64_t j = 0; j < w.count.back(); ++j)
        w.values[static_cast<std::size_t>(i * w.taps + j)] =
            static_cast<std::int32_t>(random.uniform(-0.2, 0.5) * 4194304);
    }
    w.split();
    const Image in = test::noise(12, inputs + 16, static_cast<std::uint64_t>(round));
    const auto used = static_cast<std::size_t>(3 * w.outputs);
    std::vector<std::uint8_t> a(used + static_cast<std::size_t>(ResampleLoops::slack(w))), b(a.size());
    fast.across(in.pixels.data(), a.data(), w);
    portable.across(in.pixels.data(), b.data(), w);
    a.resize(used);
    b.resize(used);
    ASSERT_EQ(a, b);
    std::vector<std::uint8_t> c(static_cast<std::size_t>(3 * inputs)), d(c.size());
    const std::int64_t row = random.below(w.outputs);
    fast.down(in.pixels.data(), in.width * 3, c.data(), 3 * inputs, w, row);
    portable.down(in.pixels.data(), in.width * 3, d.data(), 3 * inputs, w, row);
    ASSERT_EQ(c, d);
    fast.planes(in.pixels.data(), c.data(), inputs);
    portable.planes(in.pixels.data(), d.data(), inputs);
    ASSERT_EQ(c, d);
  }
}

TEST(Transforms, PreprocessIsResizeThenCropOrPad) {
  const Image in = test::noise(47, 61, 3);
  Preprocessing s;
  s.image_size = 20;
  // Width 61 * 20 / 47 = 25.9 -> 25; offset round(2.5) = 2.
  EXPECT_EQ(preprocess(in, s).pixels, crop(resize(in, 20, 25, "bicubic"), {0, 2, 20, 20}).pixels);
  s.resize_mode = "squash";
  s.image_size = {20, 30};
  EXPECT_EQ(preprocess(in, s).pixels, resize(in, 20, 30, "bicubic").pixels);
  s.resize_mode = "shortest";
  // The image is scaled down by min(47/20, 61/30) = 2.0333, so the size is 23 x 30; offset round(1.5) = 2.
  EXPECT_EQ(preprocess(in, s).pixels, crop(resize(in, 23, 30, "bicubic"), {2, 0, 20, 30}).pixels);
  s.interpolation = "bilinear";
  EXPECT_EQ(preprocess(in, s).pixels, crop(resize(in, 23, 30, "bicubic"), {2, 0, 20, 30}).pixels)
      << "OpenCLIP's non-square resize is always bicubic";
  s.resize_mode = "longest";
  s.image_size = 20;
  s.fill_color = 7;
  // 47 / 3.05 = 15.4 -> 15 rows, with 2 rows of padding above and 3 below.
  const Image padded = preprocess(in, s);
  const Image inner = resize(in, 15, 20, "bilinear");
  EXPECT_EQ(crop(padded, {2, 0, 15, 20}).pixels, inner.pixels);
  EXPECT_EQ(crop(padded, {0, 0, 2, 20}).pixels, std::vector<std::uint8_t>(2 * 20 * 3, 7));
  EXPECT_EQ(crop(padded, {17, 0, 3, 20}).pixels, std::vector<std::uint8_t>(3 * 20 * 3, 7));
}

TEST(Transforms, CropPctCropsTheCenterUnlessTheImageFits) {
  const Image in = test::noise(47, 61, 3);
  Preprocessing s;
  s.image_size = 20;
  s.crop_pct = 0.875;  // height 20 / 0.875 = 22.9 -> 22, width 61 * 22 / 47 = 28.6 -> 28
  EXPECT_EQ(preprocess(in, s).pixels, crop(resize(in, 22, 28, "bicubic"), {1, 4, 20, 20}).pixels);
  s.resize_mode = "squash";
  EXPECT_EQ(preprocess(in, s).pixels, crop(resize(in, 22, 22, "bicubic"), {1, 1, 20, 20}).pixels);
  s.resize_mode = "shortest";
  s.crop_pct = 1.0;
  EXPECT_EQ(preprocess(in, s).pixels, crop(resize(in, 20, 25, "bicubic"), {0, 2, 20, 20}).pixels);
  s.image_size = 21;  // width 61 * 21 / 47 = 27.3 -> 27
  EXPECT_EQ(preprocess(in, s).pixels, crop(resize(in, 21, 27, "bicubic"), {0, 3, 21, 21}).pixels);
  s.image_size = 22;  // the crop leaves out one of 23 rows, and the offset 0.5 is rounded to 0
  s.crop_pct = 0.94;
  EXPECT_EQ(preprocess(in, s).pixels, crop(resize(in, 23, 29, "bicubic"), {0, 4, 22, 22}).pixels);
  s.crop_rounding = "down";
  EXPECT_EQ(preprocess(in, s).pixels, crop(resize(in, 23, 29, "bicubic"), {0, 3, 22, 22}).pixels);
  const Image fits = test::noise(22, 22, 4);
  EXPECT_EQ(preprocess(fits, s).pixels, fits.pixels);
}

/// Compares Tessera's preprocessing with timm's and transformers' transforms on two images. The tests read the settings from the
/// configurations of these transforms.
class PublishedTransforms : public FolderTest {};

TEST_F(PublishedTransforms, MatchTheirLibraries) {
  const io::TensorFile file = io::load_safetensors(test_data("foreign/transforms.safetensors"));
  const auto configs = nlohmann::json::parse(file.metadata.at("configs"));
  int cases = 0;
  for (const auto& [name, files] : configs.items()) {
    const std::string model = path(name);
    std::filesystem::create_directory(model);
    for (const auto& [config, content] : files.items()) io::write_file(model + "/" + config, content.dump());
    const Preprocessing settings = read_foreign_folder(model).model.preprocessing;
    for (const char* shape : {"wide", "tall"}) {
      const at::Tensor ours = tensor_of(preprocess(image_of(file.tensors.at(concat("in.", shape))), settings)).to(at::kInt);
      const at::Tensor theirs = file.tensors.at(concat(name, ".", shape)).to(at::kInt);
      ASSERT_EQ(ours.sizes(), theirs.sizes()) << name;
      // timm resizes with Pillow, like Tessera. transformers uses torchvision, which rounds the weights differently.
      EXPECT_LE((ours - theirs).abs().max().item<int>(), name.starts_with("timm") ? 0 : 1) << name << " " << shape;
      ++cases;
    }
  }
  EXPECT_EQ(cases, 22);
}

TEST(Transforms, AVeryLongImageIsNotResizedAsAWhole) {
  const Image in = test::noise(1, 200000, 4);
  const Image out = preprocess(in, {});  // resized as a whole, the image would have 224 x 44,800,000 pixels
  EXPECT_EQ(out.height, 224);
  EXPECT_EQ(out.width, 224);
}

TEST(Transforms, AMaskIsTransformedLikeItsImageAndPaddingIsIgnored) {
  // Each class of the mask covers 8 columns of pixels. Halving the mask keeps one pixel of each pair of neighbors.
  std::vector<std::uint8_t> mask(32 * 48);
  for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = static_cast<std::uint8_t>(i % 48 / 8);
  Preprocessing s;
  s.image_size = 16;
  const auto cropped = preprocess_mask(mask, 32, 48, s);  // resized to 16 x 24, then cut to columns 4 to 19
  ASSERT_EQ(cropped.size(), 256U);
  EXPECT_EQ(cropped[0], 1);
  EXPECT_EQ(cropped[15], 4);
  s.resize_mode = "longest";
  const auto padded = preprocess_mask(mask, 32, 48, s);  // resized to 11 x 16, with 2 rows of padding above
  EXPECT_EQ(padded[0], 255);
  EXPECT_EQ(padded[2 * 16], 0);
  EXPECT_EQ(padded[2 * 16 + 15], 5);
  EXPECT_EQ(padded[15 * 16], 255);
  EXPECT_EQ(preprocess_mask(mask, 32, 48, {.image_size = {32, 48}}), mask);
}

TEST(Transforms, PlanesKeepEveryPixel) {
  const Image in = test::noise(5, 7, 9);
  EXPECT_TRUE(at::equal(to_tensor(in), tensor_of(in).permute({2, 0, 1})));
}

TEST(Transforms, BoxesOfWholePixelsAreResizedLikeCropsAndMayBeMirrored) {
  Random random(3, Purpose::shapes);
  const Image in = test::noise(40, 52, 6);
  const PixelView view{in.pixels.data(), in.height, in.width, in.width * 3};
  for (int round = 0; round < 60; ++round) {
    const std::int64_t height = 1 + random.below(40), width = 1 + random.below(52);
    const Box box{random.below(41 - height), random.below(53 - width), height, width};
    // In some rounds the output keeps the box's height or width.
    const config::Size size{random.chance(0.2) ? height : 1 + random.below(50),
                            random.chance(0.2) ? width : 1 + random.below(50)};
    const Image crop = crop_resize(in, box, size, "bicubic");
    const bool mirrored = random.chance(0.5);
    const at::Tensor expected = mirrored ? to_tensor(crop).flip(2) : to_tensor(crop);
    Image out = crop;
    std::fill(out.pixels.begin(), out.pixels.end(), 0);
    resample_box(view,
                 {static_cast<double>(box[0]), static_cast<double>(box[1]), static_cast<double>(height),
                  static_cast<double>(width)},
                 size.height, size.width, Filter::bicubic, mirrored, out.pixels.data());
    ASSERT_TRUE(at::equal(to_tensor(out), expected)) << round;
  }
}

// A ramp of gray values must stay a ramp after resampling, wherever the box starts.
TEST(Transforms, BoxesMayStartBetweenPixels) {
  Image in{4, 200, std::vector<std::uint8_t>(4 * 200 * 3)};
  for (std::size_t i = 0; i < in.pixels.size(); ++i) in.pixels[i] = static_cast<std::uint8_t>(i / 3 % 200);
  const PixelView view{in.pixels.data(), in.height, in.width, in.width * 3};
  std::vector<std::uint8_t> out(3 * 20);
  for (double left : {20.0, 20.25, 20.5, 21.75}) {
    resample_box(view, {0, left, 4, 100}, 1, 20, Filter::bilinear, false, out.data());
    for (std::size_t i = 3; i < 17; ++i) {
      const double middle = left + (static_cast<double>(i) + 0.5) * 5 - 0.5;
      EXPECT_NEAR(out[3 * i], middle, 0.55) << left << " " << i;
    }
  }
}

TEST(Transforms, CropBoxesOfExtremeImagesStayInside) {
  Random random(5, Purpose::crop);
  for (const auto& [h, w] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {1, 1000}, {1000, 1}, {2, 3}, {640, 480}})
    for (int i = 0; i < 200; ++i) {
      const auto [top, left, height, width] =
          random_resized_crop(h, w, {0.0, 1.0}, {0.75, 4.0 / 3.0}, [&] { return random.uniform(); });
      ASSERT_TRUE(top >= 0 && left >= 0 && height > 0 && width > 0 && top + height <= h && left + width <= w);
    }
}

std::string decode_error(const std::string& bytes, std::int64_t max_pixels = 1000000) {
  return sample_error_of([&] { decode_image(bytes, max_pixels); });
}

std::string_view file_in(const at::Tensor& bytes) {
  return {reinterpret_cast<const char*>(bytes.data_ptr<std::uint8_t>()), static_cast<std::size_t>(bytes.numel())};
}

io::TensorFile all_formats() {
  io::TensorFile out = io::load_safetensors(test_data("images/formats.safetensors"));
  for (const char* more : {"images/raster_formats.safetensors", "images/unusual_formats.safetensors"})
    for (const auto& [name, tensor] : io::load_safetensors(test_data(more)).tensors) out.tensors[name] = tensor;
  return out;
}

TEST(Decode, ErrorsDescribeTheBadBytes) {
  EXPECT_EQ(decode_error(""), "empty_image: the image has 0 bytes");
  EXPECT_EQ(decode_error("<html><body>404"),
            "bad_image: expected a JPEG, PNG, WebP, GIF, BMP or TIFF file, but it begins with the text "
            "\"<html><body>404\": it is a web page or an error message, not the file: download it again");
  EXPECT_EQ(decode_error("no image"),
            "bad_image: expected a JPEG, PNG, WebP, GIF, BMP or TIFF file, but the bytes are text (\"no image\")");
  EXPECT_EQ(decode_error("GIF89a______"), "bad_image: a GIF file of 12 B without a readable size in its header");
  EXPECT_EQ(decode_error(std::string(100, '\0')),
            "bad_image: expected a JPEG, PNG, WebP, GIF, BMP or TIFF file, but the bytes are nothing but zeros");
  const std::string jpeg = test::encode(test::noise(40, 30, 1), ".jpg");
  EXPECT_EQ(decode_error(jpeg.substr(0, jpeg.size() / 2)),
            "truncated: the JPEG file ends in the middle of the image");
  EXPECT_EQ(decode_error(jpeg, 1199), "too_large: the image has 30 x 40 pixels, more than the limit of 1,199");
  EXPECT_EQ(decode_error(jpeg, 1200), "no error");
  const std::string png = test::encode(test::noise(40, 30, 1), ".png");
  EXPECT_EQ(decode_error(png.substr(0, png.size() / 2)),
            "bad_image: the PNG file cannot be decoded: it ends in the middle of the image");
  std::string damaged = png;
  damaged[damaged.find("IDAT") + 6] ^= 7;
  EXPECT_TRUE(decode_error(damaged).starts_with("bad_image: the PNG file cannot be decoded: IDAT: "))
      << decode_error(damaged);
  for (std::size_t size = 1; size < 60; ++size) {
    EXPECT_NE(decode_error(jpeg.substr(0, size)), "no error");
    EXPECT_NE(decode_error(png.substr(0, size)), "no error");
  }
}

TEST(Decode, ErrorsNameUnsupportedFeaturesOfBmpGifAndTiff) {
  EXPECT_EQ(decode_error("BMW is a maker of cars"), "bad_image: expected a JPEG, PNG, WebP, GIF, BMP or TIFF file, but the bytes are a BMP file whose header is cut off or not understood");
  const auto files = all_formats();
  const auto changed = [&](const char* name, std::size_t at, std::string_view bytes) {
    std::string file(file_in(files.tensors.at(name)));
    return decode_error(file.replace(at, bytes.size(), bytes));
  };
  using namespace std::string_view_literals;
  EXPECT_EQ(changed("bmp_rgb.file", 28, "\x02"sv), "bad_image: a BMP file with 2 bits per pixel, which is not supported");
  EXPECT_EQ(changed("bmp_rgb.file", 30, "\x05"sv), "bad_image: a BMP file with compression 5, which is not supported");
  EXPECT_EQ(changed("bmp_rgb.file", 18, "\xFF\xFF\xFF\x7F"sv),
            "too_large: the image has 2147483647 x 18 pixels, more than the limit of 1,000,000");
  EXPECT_EQ(changed("gif_grey.file", 6, "\xFF\xFF\xFF\xFF"sv),
            "too_large: the image has 65535 x 65535 pixels, more than the limit of 1,000,000");
  std::string tiff(file_in(files.tensors.at("tiff_big_endian.file")));
  const std::size_t color = tiff.find(std::string("\x01\x06\0\x03", 4));
  EXPECT_EQ(decode_error(tiff.replace(color + 9, 1, "\x08")), "bad_image: a TIFF file with color space 8, which is not supported");
}

TEST(Decode, ChecksTheSizeBeforeDecoding) {
  std::string png = test::encode(test::noise(4, 4, 1), ".png");
  png.replace(16, 8, std::string("\x7F\xFF\xFF\xFF\x7F\xFF\xFF\xFF", 8));
  EXPECT_EQ(decode_error(png, 178956970),
            "too_large: the image has 2147483647 x 2147483647 pixels, more than the limit of 178,956,970");
}

std::string image_file(const std::string& name) {
  return io::read_file(test_data("images/" + name));
}

TEST(Decode, APartOfAJpegHasThePixelsOfTheWhole) {
  Random random(4, Purpose::shapes);
  for (const char* name : {"small_444.jpg", "small_422.jpg", "small_420.jpg", "small_grey.jpg",
                           "small_444_progressive.jpg", "small_422_progressive.jpg", "small_420_progressive.jpg"}) {
    const std::string file = image_file(name);
    const Image whole = decode_image(file);
    for (int round = 0; round < 40; ++round) {
      const std::int64_t height = 1 + random.below(117), width = 1 + random.below(203);
      const Box box{random.below(118 - height), random.below(204 - width), height, width};
      std::vector<std::uint8_t> pixels;
      const JpegPixels part = decode_jpeg(file, 117, 203, {8, false, box}, pixels);
      ASSERT_TRUE(part.top <= box[0] && part.left <= box[1] && part.top + part.height >= box[0] + height &&
                  part.left + part.width >= box[1] + width);
      const Image image{part.height, part.width, pixels};
      ASSERT_EQ(crop(image, {box[0] - part.top, box[1] - part.left, height, width}).pixels, crop(whole, box).pixels)
          << name << " " << box[0] << " " << box[1] << " " << height << " " << width;
    }
  }
}

TEST(Decode, AScaledJpegApproximatesTheResizedImage) {
  for (const char* name : {"large_420.jpg", "large_422_progressive.jpg", "large_grey.jpg"}) {
    const std::string file = image_file(name);
    const Image whole = decode_image(file);
    for (const auto& [size, eighths] :
         std::vector<std::pair<std::int64_t, int>>{{30, 1}, {60, 2}, {150, 4}, {250, 8}}) {
      const Crop wanted{{31, 53, 350, 500}, {size, size}};
      const DecodedPart part = decode_for(file, read_image_header(file), {wanted}, true);
      EXPECT_EQ(part.eighths, eighths) << "the smallest scale with at least as many pixels as the crop needs";
      Image scaled{size, size, std::vector<std::uint8_t>(static_cast<std::size_t>(size * size * 3))};
      resample_box(part.pixels, part.at(wanted.box), size, size, Filter::bicubic, false, scaled.pixels.data());
      const Image exact = crop_resize(whole, wanted.box, size, "bicubic");
      if (eighths == 8) {
        EXPECT_EQ(scaled.pixels, exact.pixels);
      }
      const at::Tensor difference = (tensor_of(scaled).to(at::kInt) - tensor_of(exact).to(at::kInt)).to(at::kDouble);
      EXPECT_LT(difference.abs().mean().item<double>(), 6.0) << name << " " << eighths;
      EXPECT_LT(std::abs(difference.mean().item<double>()), 0.6) << name << " " << eighths;
      EXPECT_EQ(decode_for(file, read_image_header(file), {wanted}, false).eighths, 8);
    }
  }
}

TEST(Decode, APartOfATruncatedJpegIsRefusedLikeTheWhole) {
  const std::string file = image_file("small_420.jpg");
  std::vector<std::uint8_t> pixels;
  for (std::size_t size = 700; size < file.size(); size += 97)
    for (const int eighths : {2, 8})
      EXPECT_TRUE(sample_error_of([&] {
                    decode_jpeg(file.substr(0, size), 117, 203, {eighths, false, {3, 5, 9, 9}}, pixels);
                  }).starts_with("truncated: "))
          << size;
}

// tests/data/images/generate.py writes the cases: PNG with gray levels, alpha, palettes, few bits, 16 bits, interlacing and transparency;
// lossy, lossless and animated WebP; CMYK, progressive and RGB JPEG, also with EXIF orientation; BMP with runs, masks and palettes; GIF;
// TIFF with strips, tiles and planes; files that lack their end, have junk between their parts or wrong checksums.
TEST(Decode, EveryFormatDecodesToPillowsPixels) {
  const io::TensorFile formats = all_formats();
  EXPECT_GT(formats.tensors.size(), 150U);
  for (const auto& [name, bytes] : formats.tensors) {
    if (!name.ends_with(".file")) continue;
    const std::string kind = name.substr(0, name.size() - 5);
    const Image image = decode_image(file_in(bytes));
    const at::Tensor expected = formats.tensors.at(kind + ".rgb");
    ASSERT_EQ(tensor_of(image).sizes(), expected.sizes()) << kind;
    EXPECT_TRUE(at::equal(tensor_of(image), expected)) << kind;
  }
}

TEST(Decode, LibrariesPrintNothing) {
  const io::TensorFile formats = all_formats();
  testing::internal::CaptureStderr();
  for (const auto& [name, bytes] : formats.tensors) {
    if (!name.ends_with(".file")) continue;
    std::string file(file_in(bytes));
    decode_error(file);
    decode_error(file.substr(0, file.size() * 2 / 3));
    file[file.size() * 2 / 3] ^= 7;
    decode_error(file);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Decode, Gray16BitImagesFollowGrayRange) {
  std::set<std::string> kinds;
  for (const auto& [name, bytes] : all_formats().tensors) {
    if (!name.ends_with(".values")) continue;
    const std::string kind = name.substr(0, name.size() - 7);
    kinds.insert(kind.substr(0, kind.find('_')));
    const std::string file(file_in(all_formats().tensors.at(kind + ".file")));
    const at::Tensor values = bytes.to(at::kLong).unsqueeze(2).expand({-1, -1, 3});
    for (const auto& [range, expected] : {std::pair{65535, values.bitwise_right_shift(8)},
                                          {4095, values.bitwise_right_shift(4).clamp_max(255)},
                                          {255, values.clamp_max(255)}}) {
      ImageNotes notes;
      const Image image = decode_with_notes(file, kDefaultMaxPixels, {.gray_range = range}, notes);
      EXPECT_TRUE(at::equal(tensor_of(image), expected.to(at::kByte))) << kind << " " << range;
      EXPECT_EQ(notes.largest_gray, values.max().item<std::int64_t>()) << kind;
    }
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"png", "tiff"}));
}

TEST(Decode, ExifRotationTurnsImagesAsPillowDoes) {
  const io::TensorFile formats = all_formats();
  int cases = 0;
  for (const auto& [name, expected] : formats.tensors) {
    if (!name.ends_with(".turned")) continue;
    const std::string kind = name.substr(0, name.size() - 7);
    const std::string file(file_in(formats.tensors.at(kind + ".file")));
    EXPECT_TRUE(at::equal(tensor_of(decode_image(file, kDefaultMaxPixels, {.exif_rotation = true})), expected)) << kind;
    ++cases;
  }
  EXPECT_EQ(cases, 14);
}

TEST(Decode, APartOfATurnedJpegHasThePixelsOfTheTurnedWhole) {
  Random random(6, Purpose::shapes);
  const Decoding turning{.exif_rotation = true};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const std::string file = with_orientation(image_file("large_420.jpg"), orientation);
    const Image whole = decode_image(file, kDefaultMaxPixels, turning);
    const ImageHeader header = check_image(file, kDefaultMaxPixels, turning);
    ASSERT_EQ(header.height, whole.height);
    EXPECT_EQ(header.height, orientation >= 5 ? 603 : 417);
    for (int round = 0; round < 10; ++round) {
      const std::int64_t height = 200 + random.below(150), width = 200 + random.below(150);
      const Box box{random.below(whole.height - height), random.below(whole.width - width), height, width};
      for (const std::int64_t size : {24, 220}) {
        const DecodedPart part = decode_for(file, header, {{box, {size, size}}}, true, turning);
        Image image{size, size, std::vector<std::uint8_t>(static_cast<std::size_t>(size * size * 3))};
        resample_box(part.pixels, part.at(box), size, size, Filter::bicubic, false, image.pixels.data());
        const at::Tensor difference =
            (tensor_of(image).to(at::kInt) - tensor_of(crop_resize(whole, box, size, "bicubic")).to(at::kInt)).abs();
        if (size == 220)
          EXPECT_EQ(difference.max().item<int>(), 0) << orientation;
        else
          EXPECT_LT(difference.to(at::kDouble).mean().item<double>(), 6)
              << orientation << ", scaled to " << part.eighths << " eighths";
      }
    }
  }
}

TEST(Decode, ATiffWithoutTheAlphaThatItNamesKeepsItsColors) {
  const io::TensorFile formats = all_formats();
  std::string tiff(file_in(formats.tensors.at("tiff_raw.file")));
  const std::size_t last_tag = 118;  // PlanarConfiguration with its default value
  tiff.replace(last_tag, 12, std::string("\x52\x01\x03\0\x01\0\0\0\x01\0\0\0", 12));  // ExtraSamples: colors multiplied by alpha
  EXPECT_TRUE(at::equal(tensor_of(decode_image(tiff)), formats.tensors.at("tiff_raw.rgb")));
}

// A file that is truncated must be refused with a known reason or have all its pixels; a file with a flipped bit, the right number of
// pixels. Decoding it twice must have the same result.
TEST(Decode, DamagedFilesOfEveryFormatAreRefusedOrDecodedConsistently) {
  const io::TensorFile formats = all_formats();
  const std::set<std::string> known = {"bad_image", "truncated", "too_large", "empty_image"};
  Random random(8, Purpose::shapes);
  const auto outcome = [&](const std::string& file) {
    try {
      const Image image = decode_image(file, 100000);
      EXPECT_EQ(std::ssize(image.pixels), image.height * image.width * 3);
      return std::string(image.pixels.begin(), image.pixels.end());
    } catch (const SampleError& error) {
      EXPECT_TRUE(known.contains(error.reason())) << error.reason();
      return error.reason() + error.what();
    }
  };
  for (const auto& [name, bytes] : formats.tensors) {
    if (!name.ends_with(".file")) continue;
    const std::string file(file_in(bytes));
    for (int round = 0; round < 30; ++round) {
      std::string damaged = file;
      if (round % 2 == 0)
        damaged.resize(static_cast<std::size_t>(random.below(std::ssize(file))));
      else
        damaged[static_cast<std::size_t>(random.below(std::ssize(file)))] ^= static_cast<char>(1 << random.below(8));
      const std::string first = outcome(damaged);
      EXPECT_EQ(first, outcome(damaged)) << name;
      if (round % 2 == 0) {
        EXPECT_TRUE(first.starts_with("bad_image") || first.starts_with("truncated") || damaged.empty() ||
                    first == outcome(file))
            << name << " cut to " << damaged.size();
      }
    }
  }
}

TEST(Decode, PngVariantsDecodeToTheSamePixels) {
  const Image in = test::noise(13, 17, 2);
  EXPECT_EQ(decode_image(test::encode(in, ".png")).pixels, in.pixels);
  EXPECT_EQ(decode_image(test::encode_mat(test::mat_of(in, 4), ".png")).pixels, in.pixels) << "alpha must be dropped";
  cv::Mat deep;
  test::mat_of(in, 3).convertTo(deep, CV_16U, 256);
  EXPECT_EQ(decode_image(test::encode_mat(deep + cv::Scalar(255, 255, 255), ".png")).pixels, in.pixels)
      << "16-bit values must keep the high byte";
}

TEST(Decode, LosslessWebpDecodesToTheSamePixels) {
  const Image in = test::noise(13, 17, 2);
  const std::string webp = test::encode_mat(test::mat_of(in, 3), ".webp", {cv::IMWRITE_WEBP_QUALITY, 101});
  EXPECT_EQ(decode_image(webp).pixels, in.pixels);
  EXPECT_EQ(decode_error(webp, 220), "too_large: the image has 17 x 13 pixels, more than the limit of 220");
}

TEST(Decode, AMaskInAPaletteFileHoldsIndices) {
  const io::TensorFile file = io::load_safetensors(test_data("golden/transforms/decode_palette.safetensors"));
  const at::Tensor bytes = file.tensors.at("in.file").contiguous();
  const std::string_view png = file_in(bytes);
  const Mask mask = decode_mask(png);
  const at::Tensor rgb = file.tensors.at("out.rgb").view({-1, 3});
  ASSERT_EQ(static_cast<std::int64_t>(mask.values.size()), rgb.size(0));
  // Looking up the indices in the file's palette must result in the decoded image.
  const std::size_t palette = png.find("PLTE") + 4;
  for (std::size_t i = 0; i < mask.values.size(); ++i)
    for (std::size_t c = 0; c < 3; ++c)
      ASSERT_EQ(static_cast<std::uint8_t>(png[palette + mask.values[i] * 3U + c]),
                rgb[static_cast<std::int64_t>(i)][static_cast<std::int64_t>(c)].item<std::uint8_t>());
}

}  // namespace
}  // namespace tessera
