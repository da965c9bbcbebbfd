// Decodes images and masks: JPEG, PNG, WebP, other formats, and bytes that are not an image.
#include <cstdint>
#include <vector>

#include "src/base/digest.h"
#include "src/data/image/decode.h"
#include "src/data/image/image_file.h"
#include "tests/fuzz/target.h"
#include <tessera/data/image/transforms.h>
#include <tessera/data/source.h>
#include <tessera/io/atomic_file.h>

namespace tessera::fuzz {
namespace {

constexpr std::int64_t kMaxPixels = 1 << 20;

std::size_t big_endian(const std::string& bytes, std::size_t at) {
  std::size_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<std::uint8_t>(bytes[at + i]);
  return value;
}

// Corrects the checksums of a PNG's chunks, because the decoder rejects wrong checksums early.
std::string with_checksums(std::string_view input) {
  std::string out(input);
  constexpr std::size_t frame = 12;  // the bytes of a chunk's length, type and checksum
  for (std::size_t at = 8; at + frame <= out.size();) {
    const std::size_t length = big_endian(out, at);
    if (length > out.size() - at - frame) break;
    const std::uint32_t sum = crc32(std::string_view(out).substr(at + 4, length + 4));
    for (std::size_t i = 0; i < 4; ++i) out[at + 8 + length + i] = static_cast<char>(sum >> (24 - 8 * i));
    at += frame + length;
  }
  return out;
}

const Decoding kTurning{.exif_rotation = true, .gray_range = 4095};

void check_image(std::string_view file) {
  const ImageHeader header = read_image_header(file);
  allowing<SampleError>([&] {
    const Image image = decode_image(file, kMaxPixels);
    require(image.height > 0 && image.width > 0 && image.height * image.width <= kMaxPixels, "image: invalid size");
    require(image.pixels.size() == static_cast<std::size_t>(image.height * image.width * 3), "image: wrong number of pixels");
    require(header.height == image.height && header.width == image.width, "image: the size differs from the header's");
  });
}

// Decodes the part of the image that a crop from its middle needs. Checks that this part is inside the buffer and contains the crop.
void check_part(std::string_view file, const Decoding& decoding) {
  allowing<SampleError>([&] {
    const ImageHeader header = check_image(file, kMaxPixels, decoding);
    const Crop crop{{header.height / 4, header.width / 4, (header.height + 1) / 2, (header.width + 1) / 2}, {3, 2}};
    for (const bool scaling : {false, true}) {
      const DecodedPart part = decode_for(file, header, {crop}, scaling, decoding);
      const PixelView& view = part.pixels;
      const SourceBox box = part.at(crop.box);
      require(box.top >= 0 && box.left >= 0, "image: a part begins after its crop");
      require(box.top + box.height <= static_cast<double>(view.height) &&
                  box.left + box.width <= static_cast<double>(view.width),
              "image: a part ends before its crop");
      unsigned sum = 0;  // reads every byte, so that AddressSanitizer can check it
      for (std::int64_t y = 0; y < view.height; ++y)
        for (std::int64_t x = 0; x < view.width * 3; ++x) sum += view.data[y * view.stride + x];
      require(sum <= 255U * 3U * kMaxPixels, "image: an invalid part");
    }
  });
}

void check_mask(std::string_view file) {
  try {
    const Mask mask = decode_mask(file, kMaxPixels);
    require(mask.height > 0 && mask.width > 0 && mask.height * mask.width <= kMaxPixels, "mask: invalid size");
    require(mask.values.size() == static_cast<std::size_t>(mask.height * mask.width), "mask: wrong number of values");
  } catch (const SampleError& error) {
    require(error.reason() == "bad_mask", "mask: an unexpected reason");
    check_message(error);
  }
}

// Checks that no state of the reused decoder passes from one image to the next.
void check_reference() {
  static const std::string file = io::read_file(TESSERA_SOURCE_DIR "/tests/fuzz/corpus/image/rgb.jpg");
  static const std::vector<std::uint8_t> pixels = decode_image(file, kMaxPixels).pixels;
  require(decode_image(file, kMaxPixels).pixels == pixels, "image: one image changes the next");
}

}  // namespace

void fuzz_image(std::string_view input) {
  check_reference();
  const bool png = input.starts_with("\x89PNG\r\n\x1A\n");
  const std::string bytes = png && input.size() % 4 != 0 ? with_checksums(input) : std::string(input);
  check_image(bytes);
  check_part(bytes, {});
  check_part(bytes, kTurning);
  check_mask(bytes);
  check_reference();
}

}  // namespace tessera::fuzz
