#include "src/data/image/orientation.h"

#include <cctype>
#include <utility>
#include <zlib.h>

#include "src/base/digest.h"
#include "src/data/image/raster_files.h"

namespace tessera {
namespace {

using namespace std::string_view_literals;

constexpr std::uint32_t kOrientation = 0x0112;
constexpr std::string_view kExif = "Exif\0\0"sv, kXmp = "http://ns.adobe.com/xap/1.0/\0"sv,
                           kXmpText = "XML:com.adobe.xmp\0\0\0"sv;

constexpr std::string_view kRawProfile = "Raw profile type exif\0"sv;

/// The data about an image that its file holds in addition to the pixels.
struct ImageData {
  std::string exif, xmp;
};

// Returns the bytes in a profile as ImageMagick writes it into a text: three lines (empty, name, length), then hexadecimal digits.
std::string bytes_of_profile(std::string_view text) {
  for (int line = 0; line < 3; ++line) text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  std::string out;
  int digits = 0, byte = 0;
  for (const char c : text) {
    if (std::isxdigit(static_cast<unsigned char>(c)) == 0) continue;
    byte = byte * 16 + (c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    if (++digits % 2 == 0) out += static_cast<char>(std::exchange(byte, 0));
  }
  return out;
}

// Returns the text of a chunk zTXt; empty if it is damaged or longer than orientations need.
std::string inflated(std::string_view text) {
  std::string out(1 << 16, '\0');
  uLongf size = out.size();
  const bool good = uncompress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(text.data()),
                               text.size()) == Z_OK;
  out.resize(good ? size : 0);
  return out;
}

std::string without_start(std::string_view data) {
  return std::string(data.starts_with(kExif) ? data.substr(kExif.size()) : data);
}

ImageData data_of_jpeg(std::string_view file) {
  ImageData out;
  for_each_jpeg_segment(file, [&](std::uint8_t marker, std::string_view content) {
    if (marker == 0xE1 && content.starts_with(kExif) && out.exif.empty()) out.exif = content.substr(kExif.size());
    if (marker == 0xE1 && content.starts_with(kXmp) && out.xmp.empty()) out.xmp = content.substr(kXmp.size());
    return false;
  });
  return out;
}

ImageData data_of_png(std::string_view file) {
  ImageData out;
  const ByteReader in(file, /*big_endian=*/true);
  for (std::size_t at = 8; at + 12 <= file.size(); at += 12 + in.u32(at)) {
    const std::string_view type = file.substr(at + 4, 4), content = file.substr(at + 8, in.u32(at));
    if (type == "iTXt" && content.starts_with(kXmpText)) out.xmp = content;
    if (type == "eXIf") out.exif = content;
    if (!content.starts_with(kRawProfile)) continue;
    const std::string_view text = content.substr(kRawProfile.size());
    if (type == "tEXt") out.exif = without_start(bytes_of_profile(text));
    if (type == "zTXt" && text.size() > 1) out.exif = without_start(bytes_of_profile(inflated(text.substr(1))));
  }
  return out;
}

ImageData data_of_webp(std::string_view file) {
  ImageData out;
  const ByteReader in(file);
  for (std::size_t at = 12; at + 8 <= file.size(); at += 8 + in.u32(at + 4) + in.u32(at + 4) % 2) {
    const std::string_view type = file.substr(at, 4), content = file.substr(at + 8, in.u32(at + 4));
    if (type == "EXIF") out.exif = without_start(content);
    if (type == "XMP ") out.xmp = content;
  }
  return out;
}

std::optional<std::int64_t> orientation_in_exif(std::string_view exif) {
  if (!exif.starts_with("II*\0"sv) && !exif.starts_with("MM\0*"sv)) return std::nullopt;
  const std::map<std::uint32_t, std::int64_t> numbers = tiff_numbers(exif);
  const auto found = numbers.find(kOrientation);
  return found == numbers.end() ? std::nullopt : std::optional(found->second);
}

std::int64_t orientation_in_xmp(std::string_view xmp) {
  constexpr std::string_view name = "tiff:Orientation";
  const std::size_t place = xmp.find(name);
  if (place == std::string_view::npos) return 0;
  std::string_view value = xmp.substr(place + name.size(), 3);
  if (value.starts_with("=\"")) value.remove_prefix(2);
  if (value.starts_with(">")) value.remove_prefix(1);
  return value.empty() ? 0 : value[0] - '0';
}

// Returns EXIF data that contain only the orientation.
std::string exif_of(int orientation) {
  std::string out("II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0"sv);
  out += static_cast<char>(orientation);
  return out + std::string(7, '\0');
}

}  // namespace

int exif_orientation(std::string_view file, ImageKind kind) {
  const ImageData data = kind == ImageKind::jpeg   ? data_of_jpeg(file)
                         : kind == ImageKind::png  ? data_of_png(file)
                         : kind == ImageKind::webp ? data_of_webp(file)
                                                   : ImageData{};
  const std::optional<std::int64_t> in_exif = orientation_in_exif(data.exif);
  const std::int64_t found = in_exif ? *in_exif : orientation_in_xmp(data.xmp);
  return found >= 2 && found <= 8 ? static_cast<int>(found) : 1;
}

std::string with_orientation(std::string file, int orientation) {
  if (orientation == 1) return file;
  const std::string exif = exif_of(orientation);
  if (file.starts_with("\xFF\xD8"sv)) {
    const std::size_t behind = file.starts_with("\xFF\xD8\xFF\xE0"sv) ? 4 + ByteReader(file, true).u16(4)
                                                                      : 2;  // JFIF's segment stays the first
    const std::size_t length = 2 + kExif.size() + exif.size();
    return file.insert(behind, std::string("\xFF\xE1\0"sv) + static_cast<char>(length) + std::string(kExif) + exif);
  }
  constexpr std::size_t kHeaderEnd = 33;  // offset after the signature and the IHDR chunk
  const std::string chunk = "eXIf" + exif;
  std::string number;
  for (int shift = 24; shift >= 0; shift -= 8) number += static_cast<char>(crc32(chunk) >> shift & 255);
  return file.insert(kHeaderEnd, std::string("\0\0\0"sv) + static_cast<char>(exif.size()) + chunk + number);
}

config::Size turned_size(const config::Size& size, int orientation) {
  return orientation >= 5 ? config::Size{size.width, size.height} : size;
}

Box turned_box(const Box& box, const config::Size& size, int orientation) {
  auto [top, left, height, width] = box;
  if (orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7) top = size.height - top - height;
  if (orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8) left = size.width - left - width;
  if (orientation >= 5) return {left, top, width, height};
  return {top, left, height, width};
}

Box box_before_turning(const Box& box, const config::Size& size, int orientation) {
  // Rotations by a quarter, 6 and 8, undo each other. All others undo themselves.
  const int back = orientation == 6 || orientation == 8 ? 14 - orientation : orientation;
  return turned_box(box, turned_size(size, orientation), back);
}

}  // namespace tessera
