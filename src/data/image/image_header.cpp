// Detects the kind of an image file and its size without decoding it.
#include <algorithm>
#include <array>

#include "src/base/printable.h"
#include "src/data/image/image_file.h"
#include "src/data/image/raster_files.h"

namespace tessera {
namespace {

std::int64_t big_endian(std::string_view file, std::size_t at, std::size_t bytes) {
  std::int64_t value = 0;
  if (at + bytes > file.size()) return 0;
  for (std::size_t i = 0; i < bytes; ++i) value = value << 8 | static_cast<std::uint8_t>(file[at + i]);
  return value;
}

std::int64_t little_endian(std::string_view file, std::size_t at, std::size_t bytes) {
  std::int64_t value = 0;
  if (at + bytes > file.size()) return 0;
  for (std::size_t i = bytes; i > 0; --i) value = value << 8 | static_cast<std::uint8_t>(file[at + i - 1]);
  return value;
}

// Reads the frame header (SOF), which holds the size.
void read_jpeg_size(std::string_view file, ImageHeader& header) {
  for_each_jpeg_segment(file, [&](std::uint8_t marker, std::string_view content) {
    const bool frame = marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
    if (!frame) return false;
    header.height = big_endian(content, 1, 2);
    header.width = big_endian(content, 3, 2);
    return true;
  });
}

void read_webp_size(std::string_view file, ImageHeader& header) {
  const std::string_view chunk = file.substr(12, 4);
  if (chunk == "VP8X") {
    header.width = little_endian(file, 24, 3) + 1;
    header.height = little_endian(file, 27, 3) + 1;
  } else if (chunk == "VP8L") {
    const std::int64_t bits = little_endian(file, 21, 4);
    header.width = (bits & 0x3FFF) + 1;
    header.height = (bits >> 14 & 0x3FFF) + 1;
  } else if (chunk == "VP8 ") {
    header.width = little_endian(file, 26, 2) & 0x3FFF;
    header.height = little_endian(file, 28, 2) & 0x3FFF;
  }
}

bool is_printable(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) {
    const auto b = static_cast<std::uint8_t>(c);
    return b >= 0x20 || c == '\n' || c == '\r' || c == '\t';
  });
}

std::string describe_other(std::string_view file) {
  using namespace std::string_view_literals;
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

void set_header(ImageKind kind, const char* description, const std::optional<config::Size>& size, ImageHeader& header) {
  header.kind = kind;
  header.description = description;
  header.height = size ? size->height : 0;
  header.width = size ? size->width : 0;
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
    const auto length = static_cast<std::size_t>(big_endian(file, at, 2));
    if (length < 2 || use(marker, file.substr(std::min(at + 2, file.size()), length - 2))) return;
    at += length;
  }
}

ImageHeader read_image_header(std::string_view file) {
  using namespace std::string_view_literals;
  ImageHeader header;
  if (file.starts_with("\xFF\xD8\xFF"sv)) {
    header.kind = ImageKind::jpeg;
    header.description = "a JPEG file";
    read_jpeg_size(file, header);
  } else if (file.starts_with("\x89PNG\r\n\x1A\n"sv)) {
    header.kind = ImageKind::png;
    header.description = "a PNG file";
    // libpng skips unknown chunks before IHDR, so the size must not be read from another chunk.
    if (file.size() > 16 && file.substr(12, 4) == "IHDR") {
      header.width = big_endian(file, 16, 4);
      header.height = big_endian(file, 20, 4);
    }
  } else if (file.size() >= 16 && file.starts_with("RIFF"sv) && file.substr(8, 4) == "WEBP"sv) {
    header.kind = ImageKind::webp;
    header.description = "a WebP file";
    read_webp_size(file, header);
  } else if (file.starts_with("GIF87a"sv) || file.starts_with("GIF89a"sv)) {
    set_header(ImageKind::gif, "a GIF file", gif_size(file), header);
  } else if (file.starts_with("II*\0"sv) || file.starts_with("MM\0*"sv) || file.starts_with("II+\0"sv) || file.starts_with("MM\0+"sv)) {
    set_header(ImageKind::tiff, "a TIFF file", tiff_size(file), header);
  } else if (file.starts_with("BM"sv) && bmp_size(file)) {  // the size is checked, because a text may also start with BM
    set_header(ImageKind::bmp, "a BMP file", bmp_size(file), header);
  } else {
    header.description = describe_other(file);
  }
  return header;
}

}  // namespace tessera
