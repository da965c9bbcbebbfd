#include "src/data/image/decode.h"

#include <algorithm>
#include <mutex>

#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>

#include "src/data/image/byte_reader.h"
#include "src/data/image/image_file.h"
#include "src/data/image/jpeg.h"
#include "src/data/image/raster_files.h"
#include <tessera/base/digest.h>
#include <tessera/base/error.h>
#include <tessera/base/printable.h>
#include <tessera/base/text.h>
#include <tessera/data/source.h>
#include <tessera/data/image/transforms.h>

namespace tessera {
namespace {

[[noreturn]] void bad_image(const std::string& text) {
  throw SampleError("bad_image", text);
}

}  // namespace

ImageHeader check_image(std::string_view file, std::int64_t max_pixels) {
  if (file.empty()) throw SampleError("empty_image", "the image has 0 bytes");
  const ImageHeader header = read_image_header(file);
  if (header.kind == ImageKind::other)
    bad_image("expected a JPEG, PNG, WebP, GIF, BMP or TIFF file, but the bytes are " + header.description);
  if (header.height <= 0 || header.width <= 0)
    bad_image(header.description + " of " + format_bytes(static_cast<double>(file.size())) +
              " without a readable size in its header");
  // This check precedes any allocation, because a small file may claim any size.
  if (header.height > max_pixels / header.width)
    throw SampleError("too_large", concat("the image has ", header.width, " x ", header.height,
                                          " pixels, more than the limit of ", with_thousands(max_pixels)));
  return header;
}

namespace {

cv::Mat decode_with_opencv(std::string_view file, const ImageHeader& header) {
  // Switches off OpenCV's threads, which would compete with the threads of the pipeline.
  static std::once_flag once;
  std::call_once(once, [] { cv::setNumThreads(1); });
  const cv::Mat bytes(1, static_cast<int>(file.size()), CV_8U, const_cast<char*>(file.data()));  // OpenCV does not write to it
  cv::Mat decoded;
  try {
    decoded = cv::imdecode(bytes, cv::IMREAD_UNCHANGED | cv::IMREAD_IGNORE_ORIENTATION);
  } catch (const cv::Exception& error) {
    bad_image(header.description + " that cannot be decoded: " + printable(error.err));
  }
  if (decoded.empty()) bad_image(header.description + " that is corrupt or cut off");
  if (decoded.rows != header.height || decoded.cols != header.width)
    bad_image(header.description + " with a size other than its header's");
  return decoded;
}

// Converts 8-bit or 16-bit BGR or gray, with or without alpha, to 8-bit RGB. Drops alpha and the lower byte of 16-bit values.
template <class T>
Image to_rgb(const cv::Mat& mat) {
  constexpr int shift = (sizeof(T) - 1) * 8;
  Image image{mat.rows, mat.cols, std::vector<std::uint8_t>(mat.total() * 3)};
  const int channels = mat.channels();
  const int red = channels >= 3 ? 2 : 0;
  const int green = channels >= 3 ? 1 : 0;
  std::uint8_t* out = image.pixels.data();
  for (int y = 0; y < mat.rows; ++y) {
    const T* in = mat.ptr<T>(y);
    for (int x = 0; x < mat.cols; ++x, in += channels, out += 3) {
      out[0] = static_cast<std::uint8_t>(in[red] >> shift);
      out[1] = static_cast<std::uint8_t>(in[green] >> shift);
      out[2] = static_cast<std::uint8_t>(in[0] >> shift);
    }
  }
  return image;
}

// Returns the smallest scale, in eighths, at which no crop is smaller than the size that it will be resized to. Only 1, 2, 4
// and 8 are considered, because other scales have no vectorized inverse DCT and are slower.
int choose_eighths(const std::vector<Crop>& crops) {
  for (const int eighths : {1, 2, 4})
    if (std::all_of(crops.begin(), crops.end(), [&](const Crop& crop) {
          return crop.box[2] * eighths >= 8 * crop.size.height && crop.box[3] * eighths >= 8 * crop.size.width;
        }))
      return eighths;
  return 8;
}

Box union_of(const std::vector<Crop>& crops) {
  Box all = crops.front().box;
  for (const Crop& crop : crops) {
    const std::int64_t bottom = std::max(all[0] + all[2], crop.box[0] + crop.box[2]);
    const std::int64_t right = std::max(all[1] + all[3], crop.box[1] + crop.box[3]);
    all[0] = std::min(all[0], crop.box[0]);
    all[1] = std::min(all[1], crop.box[1]);
    all[2] = bottom - all[0];
    all[3] = right - all[1];
  }
  return all;
}

Image decode_others(std::string_view file, const ImageHeader& header) {
  const config::Size size{header.height, header.width};
  if (header.kind == ImageKind::gif) return {header.height, header.width, decode_gif(file, size)};
  if (header.kind == ImageKind::bmp) return {header.height, header.width, decode_bmp(file, size)};
  if (header.kind == ImageKind::tiff) return {header.height, header.width, decode_tiff(file, size)};
  const cv::Mat decoded = decode_with_opencv(file, header);
  return decoded.depth() == CV_16U ? to_rgb<std::uint16_t>(decoded) : to_rgb<std::uint8_t>(decoded);
}

}  // namespace

SourceBox DecodedPart::at(const Box& box) const {
  const double scale = eighths / 8.0;
  return {static_cast<double>(box[0]) * scale - static_cast<double>(top),
          static_cast<double>(box[1]) * scale - static_cast<double>(left), static_cast<double>(box[2]) * scale,
          static_cast<double>(box[3]) * scale};
}

Image decode_image(std::string_view file, std::int64_t max_pixels) {
  const ImageHeader header = check_image(file, max_pixels);
  if (header.kind != ImageKind::jpeg) return decode_others(file, header);
  Image image{header.height, header.width, {}};
  decode_jpeg(file, header.height, header.width, {}, image.pixels);
  return image;
}

DecodedPart decode_for(std::string_view file, const ImageHeader& header, const std::vector<Crop>& crops, bool scaling) {
  constexpr std::size_t kept = 64 << 20;  // bytes that a thread keeps allocated
  thread_local std::vector<std::uint8_t> pixels;
  if (pixels.capacity() > kept) std::vector<std::uint8_t>().swap(pixels);
  if (header.kind != ImageKind::jpeg) {
    Image image = decode_others(file, header);
    pixels.swap(image.pixels);
    return {{pixels.data(), image.height, image.width, image.width * 3}};
  }
  const JpegRequest request{scaling ? choose_eighths(crops) : 8, false, union_of(crops)};
  const JpegPixels part = decode_jpeg(file, header.height, header.width, request, pixels);
  return {{pixels.data(), part.height, part.width, part.width * 3}, part.top, part.left, request.eighths};
}

namespace {

constexpr std::size_t kHeaderEnd = 33;  // offset after the signature and the IHDR chunk

// Removes the palette of a PNG, so that a decoder returns the indices as gray levels.
std::string without_palette(std::string_view file) {
  std::string out(file.substr(0, kHeaderEnd));
  out[25] = 0;  // color type gray
  const std::uint32_t crc = crc32(std::string_view(out).substr(12, 17));
  for (std::size_t i = 0; i < 4; ++i) out[29 + i] = static_cast<char>(crc >> (24 - 8 * i));
  const ByteReader in(file, /*big_endian=*/true);
  for (std::size_t at = kHeaderEnd; at + 12 <= file.size();) {
    const std::size_t length = 12 + static_cast<std::size_t>(in.u32(at));
    const std::string_view type = file.substr(at + 4, 4);
    if (type == "IDAT" || type == "IEND") out += file.substr(at, length);
    at += length;
  }
  return out;
}

}  // namespace

Mask decode_mask(std::string_view file, std::int64_t max_pixels) {
  const auto fail = [](const std::string& text) {
    throw SampleError("bad_mask", "the mask is not a PNG of class indices: " + text);
  };
  try {
    const ImageHeader header = check_image(file, max_pixels);
    if (header.kind != ImageKind::png || file.size() < kHeaderEnd) fail("it is " + header.description);
    const int bits = file[24];
    const int color_type = file[25];
    if ((color_type != 0 && color_type != 3) || bits > 8) fail("it has colors, alpha or more than 8 bits");
    const std::string indices = color_type == 3 ? without_palette(file) : std::string();
    const cv::Mat decoded = decode_with_opencv(color_type == 3 ? std::string_view(indices) : file, header);
    // A PNG with a transparent gray level is decoded to four channels, and each of the first three is the gray level.
    const int channels = decoded.channels();
    Mask mask{decoded.rows, decoded.cols, std::vector<std::uint8_t>(decoded.total())};
    const int levels = (1 << bits) - 1;  // the decoder scales levels of fewer than 8 bits to 0..255
    for (std::size_t i = 0; i < mask.values.size(); ++i)
      mask.values[i] = static_cast<std::uint8_t>(decoded.data[i * static_cast<std::size_t>(channels)] * levels / 255);
    return mask;
  } catch (const SampleError& error) {
    if (error.reason() == "bad_mask") throw;
    throw SampleError("bad_mask", std::string("the mask cannot be read: ") + error.what());
  }
}

std::vector<float> decode_depth(std::string_view file, double units, std::int64_t max_pixels) {
  try {
    const ImageHeader header = check_image(file, max_pixels);
    const bool fits = header.kind == ImageKind::png && file.size() >= kHeaderEnd && file[24] == 16 && file[25] == 0;
    if (!fits) bad_image("expected a 16-bit gray PNG, but it is " + header.description + " of another kind");
    const cv::Mat decoded = decode_with_opencv(file, header);
    std::vector<float> meters(decoded.total());
    const auto* values = decoded.ptr<std::uint16_t>();
    const auto channels = static_cast<std::size_t>(decoded.channels());
    for (std::size_t i = 0; i < meters.size(); ++i) meters[i] = static_cast<float>(values[i * channels] / units);
    return meters;
  } catch (const SampleError& error) {
    throw SampleError("bad_depth", std::string("the depth cannot be read: ") + error.what());
  }
}

}  // namespace tessera
