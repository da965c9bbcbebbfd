#include <cstring>
#include <memory>
#include <mutex>
#include <turbojpeg.h>

#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>

#include "src/data/image_file.h"
#include <tessera/base/digest.h>
#include <tessera/base/error.h>
#include <tessera/base/printable.h>
#include <tessera/base/text.h>
#include <tessera/data/source.h>
#include <tessera/data/transforms.h>

namespace tessera {
namespace {

[[noreturn]] void bad_image(const std::string& text) {
  throw SampleError("bad_image", text);
}

ImageHeader check_header(std::string_view file, std::int64_t max_pixels) {
  if (file.empty()) throw SampleError("empty_image", "the image has 0 bytes");
  const ImageHeader header = read_image_header(file);
  if (header.kind == ImageKind::other)
    bad_image("expected a JPEG, PNG or WebP file, but the bytes are " + header.description);
  if (header.height <= 0 || header.width <= 0)
    bad_image(header.description + " of " + format_bytes(static_cast<double>(file.size())) +
              " without a readable size in its header");
  // Before anything is allocated: a small file may claim any size.
  if (header.height > max_pixels / header.width)
    throw SampleError("too_large", concat("the picture has ", header.width, " x ", header.height,
                                          " pixels, more than the limit of ", with_thousands(max_pixels)));
  return header;
}

struct DestroyTurbo {
  void operator()(void* handle) const { tjDestroy(handle); }
};

// One of the thread's own, made anew when there is none.
std::unique_ptr<void, DestroyTurbo>& turbo_handle() {
  thread_local std::unique_ptr<void, DestroyTurbo> handle;
  if (handle == nullptr) handle.reset(tjInitDecompress());
  if (handle == nullptr) throw std::bad_alloc();
  return handle;
}

// libjpeg goes on with what it has after a warning. Pillow, and so we, accept all of them but a file that ends too
// early.
void check_jpeg(int status, tjhandle turbo) {
  if (status == 0) return;
  const std::string text = tjGetErrorStr2(turbo);
  if (text.find("Premature end of JPEG file") != std::string::npos)
    throw SampleError("truncated", "the JPEG file ends in the middle of the picture");
  if (tjGetErrorCode(turbo) != TJERR_WARNING) bad_image("the JPEG file cannot be decoded: " + printable(text));
}

// a * b / 255, rounded, as Pillow's MULDIV255.
std::uint8_t muldiv(int a, int b) {
  const int t = a * b + 128;
  return static_cast<std::uint8_t>(((t >> 8) + t) >> 8);
}

// Ink is stored inverted (Adobe's convention, which Pillow assumes for every CMYK JPEG): a stored 255 is no ink.
void cmyk_to_rgb(const std::vector<std::uint8_t>& cmyk, std::vector<std::uint8_t>& rgb) {
  for (std::size_t i = 0; i < rgb.size() / 3; ++i) {
    const int light = cmyk[4 * i + 3];  // 255 - K
    for (std::size_t c = 0; c < 3; ++c)
      rgb[3 * i + c] = static_cast<std::uint8_t>(light - muldiv(255 - cmyk[4 * i + c], light));
  }
}

Image decode_jpeg(std::string_view file, const ImageHeader& header) {
  const tjhandle turbo = turbo_handle().get();
  const auto* bytes = reinterpret_cast<const unsigned char*>(file.data());
  int width = 0, height = 0, subsampling = 0, colours = 0;
  if (tjDecompressHeader3(turbo, bytes, file.size(), &width, &height, &subsampling, &colours) != 0) {
    const std::string text = printable(tjGetErrorStr2(turbo));
    turbo_handle().reset();  // it would go on within the header of this file, and fail for every one after it
    bad_image("the JPEG header cannot be read: " + text);
  }
  // libjpeg finds markers behind garbage, too: the limit was checked on what we found.
  if (width != header.width || height != header.height) bad_image("the JPEG header holds two sizes");
  Image image{height, width,
              std::vector<std::uint8_t>(static_cast<std::size_t>(height) * static_cast<std::size_t>(width) * 3)};
  // Without flags: the slow integer DCT and fancy upsampling. A progressive file of thousands of scans is an attack.
  constexpr int flags = TJFLAG_LIMITSCANS;
  if (colours == TJCS_CMYK || colours == TJCS_YCCK) {
    std::vector<std::uint8_t> cmyk(image.pixels.size() / 3 * 4);
    check_jpeg(tjDecompress2(turbo, bytes, file.size(), cmyk.data(), width, 0, height, TJPF_CMYK, flags), turbo);
    cmyk_to_rgb(cmyk, image.pixels);
  } else {
    check_jpeg(tjDecompress2(turbo, bytes, file.size(), image.pixels.data(), width, 0, height, TJPF_RGB, flags), turbo);
  }
  return image;
}

cv::Mat decode_with_opencv(std::string_view file, const ImageHeader& header) {
  // The pipeline has threads of its own: OpenCV's would only compete with them.
  static std::once_flag once;
  std::call_once(once, [] { cv::setNumThreads(1); });
  const cv::Mat bytes(1, static_cast<int>(file.size()), CV_8U, const_cast<char*>(file.data()));  // only read
  cv::Mat decoded;
  try {
    decoded = cv::imdecode(bytes, cv::IMREAD_UNCHANGED | cv::IMREAD_IGNORE_ORIENTATION);
  } catch (const cv::Exception& error) {
    bad_image(header.description + " that cannot be decoded: " + printable(error.err));
  }
  if (decoded.empty()) bad_image(header.description + " that is corrupt or cut off");
  if (decoded.rows != header.height || decoded.cols != header.width)
    bad_image(header.description + " of another size than its header's");
  return decoded;
}

// Blue-green-red(-alpha) or grey(-alpha), 8 or 16 bits, to 8-bit RGB: alpha dropped, the high byte of 16 bits.
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

}  // namespace

Image decode_image(std::string_view file, std::int64_t max_pixels) {
  const ImageHeader header = check_header(file, max_pixels);
  if (header.kind == ImageKind::jpeg) return decode_jpeg(file, header);
  const cv::Mat decoded = decode_with_opencv(file, header);
  return decoded.depth() == CV_16U ? to_rgb<std::uint16_t>(decoded) : to_rgb<std::uint8_t>(decoded);
}

namespace {

constexpr std::size_t kHeaderEnd = 33;  // signature and the IHDR chunk

std::uint32_t read_u32(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<std::uint8_t>(bytes[at + i]);
  return value;
}

// The same PNG with its palette taken away, so that a decoder gives the indices as grey levels.
std::string without_palette(std::string_view file) {
  std::string out(file.substr(0, kHeaderEnd));
  out[25] = 0;  // colour type grey
  const std::uint32_t crc = crc32(std::string_view(out).substr(12, 17));
  for (std::size_t i = 0; i < 4; ++i) out[29 + i] = static_cast<char>(crc >> (24 - 8 * i));
  for (std::size_t at = kHeaderEnd; at + 12 <= file.size();) {
    const std::size_t length = 12 + static_cast<std::size_t>(read_u32(file, at));
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
    const ImageHeader header = check_header(file, max_pixels);
    if (header.kind != ImageKind::png || file.size() < kHeaderEnd) fail("it is " + header.description);
    const int bits = file[24];
    const int colour_type = file[25];
    if ((colour_type != 0 && colour_type != 3) || bits > 8) fail("it has colours, alpha or more than 8 bits");
    const std::string indices = colour_type == 3 ? without_palette(file) : std::string();
    const cv::Mat decoded = decode_with_opencv(colour_type == 3 ? std::string_view(indices) : file, header);
    // A transparent grey level makes it four channels; any of the first three is the level.
    const int channels = decoded.channels();
    Mask mask{decoded.rows, decoded.cols, std::vector<std::uint8_t>(decoded.total())};
    const int levels = (1 << bits) - 1;  // fewer bits come scaled to 0..255
    for (std::size_t i = 0; i < mask.values.size(); ++i)
      mask.values[i] = static_cast<std::uint8_t>(decoded.data[i * static_cast<std::size_t>(channels)] * levels / 255);
    return mask;
  } catch (const SampleError& error) {
    if (error.reason() == "bad_mask") throw;
    throw SampleError("bad_mask", std::string("the mask cannot be read: ") + error.what());
  }
}

}  // namespace tessera
