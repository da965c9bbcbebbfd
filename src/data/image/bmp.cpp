// Windows bitmaps: https://learn.microsoft.com/windows/win32/gdi/bitmap-storage. OpenCV gives other pixels than Pillow for 16 bits per
// pixel and for color masks, and refuses some run-length encoded files.
#include <algorithm>
#include <array>

#include "src/data/image/raster_files.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr std::size_t kFileHeader = 14, kOldHeader = 12;

struct BmpHeader {
  std::int64_t height = 0, width = 0;
  bool top_first = false;
  std::uint32_t bits = 0, compression = 0, colors = 0;
  std::array<std::uint32_t, 3> masks{};                  // red, green, blue
  std::size_t palette = 0, color_bytes = 4, pixels = 0;  // `palette` and `pixels` are offsets in the file
};

enum Compression : std::uint32_t { kRaw = 0, kRle8 = 1, kRle4 = 2, kBitFields = 3 };

std::optional<BmpHeader> read_bmp_header(std::string_view file) {
  const ByteReader in(file);
  const std::uint32_t size = in.u32(kFileHeader);
  BmpHeader out;
  const std::array<std::uint32_t, 7> known = {12, 40, 52, 56, 64, 108, 124};
  if (!contains(known, size) || file.size() < kFileHeader + size) return std::nullopt;
  out.palette = kFileHeader + size;
  if (size == kOldHeader) {
    out.width = in.u16(kFileHeader + 4);
    out.height = in.u16(kFileHeader + 6);
    out.bits = in.u16(kFileHeader + 10);
    out.color_bytes = 3;
  } else {
    out.width = in.u32(kFileHeader + 4);
    out.top_first = in.byte(kFileHeader + 11) == 0xFF;  // if the height is negative, the top row comes first
    out.height = out.top_first ? (std::int64_t{1} << 32) - in.u32(kFileHeader + 8) : in.u32(kFileHeader + 8);
    out.bits = in.u16(kFileHeader + 14);
    out.compression = in.u32(kFileHeader + 16);
    out.colors = in.u32(kFileHeader + 32);
    // Longer headers contain the masks. A 40-byte header is followed by the masks, at the same offset in the file.
    for (std::size_t i = 0; i < 3; ++i) out.masks[i] = in.u32(kFileHeader + 40 + 4 * i);
    if (out.compression == kBitFields && size == 40) out.palette += 12;
  }
  if (out.colors == 0 && out.bits <= 8) out.colors = 1U << out.bits;
  out.pixels = in.u32(10);
  // In some files the offset of the pixels points to the palette.
  if (out.pixels == kFileHeader + size && out.bits <= 8) out.pixels += out.color_bytes * out.colors;
  return out;
}

// Extracts a color from a pixel's bits and scales it to 8 bits.
struct Channel {
  std::uint32_t shift = 0, most = 255;
  std::uint8_t of(std::uint32_t pixel) const { return static_cast<std::uint8_t>((pixel >> shift & most) * 255 / most); }
};

std::array<Channel, 3> channels_of(const BmpHeader& header) {
  const std::array<Channel, 3> five = {{{10, 31}, {5, 31}, {0, 31}}}, eight = {{{16, 255}, {8, 255}, {0, 255}}};
  if (header.compression != kBitFields) return header.bits == 16 ? five : eight;
  if (header.bits == 32 && header.masks == std::array<std::uint32_t, 3>{}) return eight;
  std::array<Channel, 3> out;
  for (std::size_t i = 0; i < 3; ++i) {
    std::uint32_t mask = header.masks[i], shift = 0;
    for (; mask != 0 && (mask & 1U) == 0; ++shift) mask >>= 1;
    if (mask != 31 && mask != 63 && mask != 255) bad_image("a BMP file with color masks that are not supported");
    out[i] = {shift, mask};
  }
  return out;
}

/// Decodes a run-length encoded file to its indices, [height, width] with the rows in the file's order.
std::vector<std::uint8_t> decode_runs(std::string_view file, const BmpHeader& header) {
  const ByteReader in(file);
  const bool halves = header.compression == kRle4;
  const auto width = static_cast<std::size_t>(header.width), count = width * static_cast<std::size_t>(header.height);
  const auto half = [](std::uint8_t pair, std::size_t i) {
    return static_cast<std::uint8_t>(i % 2 == 0 ? pair >> 4 : pair & 15);
  };
  std::vector<std::uint8_t> out;
  out.reserve(count);
  std::size_t at = header.pixels, in_row = 0;  // runs may go beyond the row, as Pillow counts
  while (out.size() < count && at + 1 < file.size()) {
    const std::uint8_t first = in.byte(at), second = in.byte(at + 1);
    at += 2;
    if (first > 0) {
      const std::size_t run = std::min<std::size_t>(first, width - std::min(in_row, width));
      for (std::size_t i = 0; i < run; ++i) out.push_back(halves ? half(second, i) : second);
      in_row += run;
    } else if (second == 0) {
      out.resize((out.size() + width - 1) / width * width);
      in_row = 0;
    } else if (second == 1) {
      break;
    } else if (second == 2) {
      out.resize(std::min(count, out.size() + in.byte(at) + in.byte(at + 1) * width));
      in_row = out.size() % width;
      at += 2;
    } else {
      const std::size_t run = std::min<std::size_t>(second, count - out.size()), bytes = halves ? (run + 1) / 2 : run;
      if (at + bytes > file.size()) break;
      for (std::size_t i = 0; i < run; ++i) out.push_back(halves ? half(in.byte(at + i / 2), i) : in.byte(at + i));
      at += bytes + (at + bytes) % 2;
      in_row += second;
    }
  }
  if (out.size() < count) bad_image("a BMP file that is corrupt or cut off");
  return out;
}

}  // namespace

std::optional<config::Size> bmp_size(std::string_view file) {
  const auto header = read_bmp_header(file);
  if (!header) return std::nullopt;
  return config::Size{header->height, header->width};
}

std::vector<std::uint8_t> decode_bmp(std::string_view file, const config::Size& size) {
  const BmpHeader header = *read_bmp_header(file);
  const std::uint32_t bits = header.bits;
  const bool indexed = bits == 1 || bits == 4 || bits == 8;
  if (!indexed && bits != 16 && bits != 24 && bits != 32)
    bad_image(concat("a BMP file with ", bits, " bits per pixel, which is not supported"));
  if (header.compression > kBitFields || (header.compression == kBitFields && indexed))
    bad_image(concat("a BMP file with compression ", header.compression, ", which is not supported"));
  const ByteReader in(file);
  const auto height = static_cast<std::size_t>(size.height), width = static_cast<std::size_t>(size.width);
  std::vector<std::uint8_t> out(height * width * 3);
  const bool runs = header.compression == kRle8 || header.compression == kRle4;
  if (runs && !indexed) bad_image("a BMP file with run-length encoding but without a palette");
  const std::size_t row_bytes = (width * bits + 31) / 32 * 4, used = (width * bits + 7) / 8;
  // The padding of the last row may be missing.
  if (!runs && (header.pixels > file.size() || file.size() - header.pixels < (height - 1) * row_bytes + used))
    bad_image("a BMP file that is corrupt or cut off");
  const std::vector<std::uint8_t> indices = runs ? decode_runs(file, header) : std::vector<std::uint8_t>();
  const std::array<Channel, 3> channels = indexed ? std::array<Channel, 3>{} : channels_of(header);
  for (std::size_t y = 0; y < height; ++y) {
    const std::size_t row = header.pixels + (header.top_first ? y : height - 1 - y) * row_bytes;
    std::uint8_t* pixel = out.data() + y * width * 3;
    for (std::size_t x = 0; x < width; ++x, pixel += 3) {
      if (!indexed) {
        const auto value = static_cast<std::uint32_t>(in.number(row + x * bits / 8, bits / 8));
        for (std::size_t c = 0; c < 3; ++c) pixel[c] = channels[c].of(value);
        continue;
      }
      const std::uint32_t index = runs ? indices[(header.top_first ? y : height - 1 - y) * width + x]
                                       : in.byte(row + x * bits / 8) >> (8 - bits - x * bits % 8) & ((1U << bits) - 1);
      if (index >= header.colors) continue;  // a pixel with an index beyond the palette stays black, as in Pillow
      for (std::size_t c = 0; c < 3; ++c) pixel[c] = in.byte(header.palette + index * header.color_bytes + 2 - c);
    }
  }
  return out;
}

}  // namespace tessera
