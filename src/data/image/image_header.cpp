// Detects the kind of an image file and its size without decoding it.
#include <algorithm>
#include <array>

#include "src/base/printable.h"
#include "src/data/image/image_file.h"
#include "src/data/image/raster_files.h"

namespace tessera {
namespace {

// Returns a number of `count` bytes, or 0 if the file ends before its last byte.
std::int64_t number_in(std::string_view file, std::size_t at, std::size_t count, bool big_endian = false) {
  return at + count > file.size() ? 0 : static_cast<std::int64_t>(ByteReader(file, big_endian).number(at, count));
}

// Returns the size in the frame header (SOF).
std::optional<config::Size> jpeg_size(std::string_view file) {
  std::optional<config::Size> size;
  for_each_jpeg_segment(file, [&](std::uint8_t marker, std::string_view content) {
    const bool frame = marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
    if (frame) size = {number_in(content, 1, 2, true), number_in(content, 3, 2, true)};
    return frame;
  });
  return size;
}

// libpng skips unknown chunks before IHDR, so the size must not be read from another chunk.
std::optional<config::Size> png_size(std::string_view file) {
  if (file.size() <= 16 || file.substr(12, 4) != "IHDR") return std::nullopt;
  return config::Size{number_in(file, 20, 4, true), number_in(file, 16, 4, true)};
}

std::optional<config::Size> webp_size(std::string_view file) {
  const std::string_view chunk = file.substr(12, 4);
  const std::int64_t bits = number_in(file, 21, 4);
  if (chunk == "VP8X") return config::Size{number_in(file, 27, 3) + 1, number_in(file, 24, 3) + 1};
  if (chunk == "VP8L") return config::Size{(bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1};
  if (chunk == "VP8 ") return config::Size{number_in(file, 28, 2) & 0x3FFF, number_in(file, 26, 2) & 0x3FFF};
  return std::nullopt;
}

using namespace std::string_view_literals;

bool is_printable(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) {
    const auto b = static_cast<std::uint8_t>(c);
    return b >= 0x20 || c == '\n' || c == '\r' || c == '\t';
  });
}

std::string describe_other(std::string_view file) {
  struct Known {
    std::string_view start;
    const char* name;
  };
  constexpr std::array known = {Known{"BM"sv, "a BMP file whose header is cut off or not understood"},
                                Known{"\x1F\x8B"sv, "gzip-compressed data"},
                                Known{"%PDF"sv, "a PDF file"},
                                Known{"PK\x03\x04"sv, "a zip archive"},
                                Known{"\0\0\1\0"sv, "an icon file"},
                                Known{"8BPS"sv, "a Photoshop file"},
                                Known{"\xFF\x0A"sv, "a JPEG XL file"},
                                Known{"\0\0\0\x0CjP"sv, "a JPEG 2000 file"}};
  for (const Known& each : known)
    if (file.starts_with(each.start)) return each.name;
  if (file.size() > 12 && file.substr(4, 4) == "ftyp")
    return "an ISO media file (" + printable(file.substr(8, 4)) + ")";
  if (std::all_of(file.begin(), file.end(), [](char c) { return c == 0; })) return "nothing but zeros";
  const std::string_view start = file.substr(0, 24);
  if (is_printable(start)) {
    const std::string_view line = start.substr(0, start.find_first_of("\r\n"));
    return "text (\"" + printable(line) + (line.size() < file.size() ? "...\")" : "\")");
  }
  constexpr std::string_view digits = "0123456789abcdef";
  std::string hex;
  for (char c : file.substr(0, 4)) {
    const auto b = static_cast<std::uint8_t>(c);
    hex += {digits[b >> 4], digits[b & 15], ' '};
  }
  return "of an unknown kind (it starts with " + hex + "...)";
}

struct ImageFormat {
  ImageKind kind;
  const char* description;
  std::vector<std::string_view> starts;
  std::optional<config::Size> (*size)(std::string_view file);
};

// Returns the format of a file; null if it is none of these.
const ImageFormat* format_of(std::string_view file) {
  static const std::array<ImageFormat, 6> formats = {
      {{ImageKind::jpeg, "a JPEG file", {"\xFF\xD8\xFF"sv}, jpeg_size},
       {ImageKind::png, "a PNG file", {"\x89PNG\r\n\x1A\n"sv}, png_size},
       {ImageKind::webp, "a WebP file", {"RIFF"sv}, webp_size},
       {ImageKind::gif, "a GIF file", {"GIF87a"sv, "GIF89a"sv}, gif_size},
       {ImageKind::tiff, "a TIFF file", {"II*\0"sv, "MM\0*"sv, "II+\0"sv, "MM\0+"sv}, tiff_size},
       {ImageKind::bmp, "a BMP file", {"BM"sv}, bmp_size}}};
  const auto* const found = std::ranges::find_if(formats, [&](const ImageFormat& format) {
    return std::ranges::any_of(format.starts, [&](std::string_view start) { return file.starts_with(start); });
  });
  if (found == formats.end() || (found->kind == ImageKind::webp && (file.size() < 16 || file.substr(8, 4) != "WEBP"sv))) return nullptr;
  return found->kind == ImageKind::bmp && !bmp_size(file) ? nullptr : found;  // a text may also start with BM
}

}  // namespace

void for_each_jpeg_segment(std::string_view file,
                           const std::function<bool(std::uint8_t marker, std::string_view content)>& use) {
  for (std::size_t at = 2; (at = file.find('\xFF', at)) < file.size();) {
    at = std::min(file.find_first_not_of('\xFF', at), file.size());
    if (at == file.size()) return;
    const auto marker = static_cast<std::uint8_t>(file[at++]);
    if (marker == 0xD9 || marker == 0xDA) return;
    if (marker <= 0x01 || (marker >= 0xD0 && marker <= 0xD8)) continue;  // not a marker, or a marker without content
    const auto length = static_cast<std::size_t>(number_in(file, at, 2, true));
    if (length < 2 || use(marker, file.substr(std::min(at + 2, file.size()), length - 2))) return;
    at += length;
  }
}

ImageHeader read_image_header(std::string_view file) {
  const ImageFormat* const format = format_of(file);
  if (format == nullptr) return {ImageKind::other, describe_other(file)};
  const config::Size size = format->size(file).value_or(config::Size{0, 0});
  return {format->kind, format->description, size.height, size.width};
}

}  // namespace tessera
