#include <webp/decode.h>

#include "src/data/image/raster_files.h"

namespace tessera {
namespace {

/// An image's data and its place on the canvas.
struct Frame {
  std::string_view data;
  std::size_t top = 0, left = 0;
};

// Returns the first frame of an animation (ANMF); a file without frames is itself the image.
Frame first_frame(std::string_view file) {
  constexpr std::size_t kHead = 16;  // bytes of a frame's place, size and duration
  const ByteReader in(file);
  const bool animated = file.substr(12, 4) == "VP8X" && (in.byte(20) & 2) != 0;
  if (!animated) return {file};
  for (std::size_t at = 12; at + 8 + kHead <= file.size(); at += 8 + in.u32(at + 4) + in.u32(at + 4) % 2)
    if (file.substr(at, 4) == "ANMF" && in.u32(at + 4) >= kHead)
      return {file.substr(at + 8 + kHead, in.u32(at + 4) - kHead), 2 * static_cast<std::size_t>(in.number(at + 11, 3)),
              2 * static_cast<std::size_t>(in.number(at + 8, 3))};
  bad_image("a WebP file that ends before its first image");
}

}  // namespace

std::vector<std::uint8_t> decode_webp(std::string_view file, const config::Size& size) {
  const Frame frame = first_frame(file);
  const auto height = static_cast<std::size_t>(size.height), width = static_cast<std::size_t>(size.width);
  const auto* data = reinterpret_cast<const std::uint8_t*>(frame.data.data());
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) bad_image("a WebP file that this version of libwebp cannot read");
  const auto check = [](VP8StatusCode status) {
    if (status == VP8_STATUS_NOT_ENOUGH_DATA || status == VP8_STATUS_SUSPENDED)
      bad_image("a WebP file that ends in the middle of the image");
    if (status != VP8_STATUS_OK) bad_image("a WebP file that is damaged");
  };
  check(WebPGetFeatures(data, frame.data.size(), &config.input));
  const auto rows = static_cast<std::size_t>(config.input.height),
             columns = static_cast<std::size_t>(config.input.width);
  const bool fits = frame.data.size() < file.size() ? frame.top + rows <= height && frame.left + columns <= width
                                                    : rows == height && columns == width;
  if (!fits) bad_image("a WebP file with a size other than its header's");
  std::vector<std::uint8_t> out(height * width * 3);  // black around the first frame, as in Pillow
  const std::size_t place = (frame.top * width + frame.left) * 3;
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {out.data() + place, static_cast<int>(width * 3), out.size() - place};
  check(WebPDecode(data, frame.data.size(), &config));
  return out;
}

}  // namespace tessera
