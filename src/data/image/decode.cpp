#include "src/data/image/decode.h"

#include <algorithm>

#include "src/base/digest.h"
#include "src/data/image/image_file.h"
#include "src/data/image/orientation.h"
#include "src/data/image/raster_files.h"
#include "src/io/stand_in.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/data/image/transforms.h>
#include <tessera/data/source.h>

namespace tessera {

ImageHeader check_image(std::string_view file, std::int64_t max_pixels, const Decoding& decoding) {
  if (file.empty()) throw SampleError("empty_image", "the image has 0 bytes");
  ImageHeader header = read_image_header(file);
  if (header.kind == ImageKind::other) {
    const std::string known = io::describe_stand_in(file);
    bad_image("expected a JPEG, PNG, WebP, GIF, BMP or TIFF file, but " +
              (known.empty() ? "the bytes are " + header.description : known));
  }
  if (header.height <= 0 || header.width <= 0)
    bad_image(header.description + " of " + format_bytes(static_cast<double>(file.size())) +
              " without a readable size in its header");
  // This check precedes any allocation, because a small file may claim any size.
  if (header.height > max_pixels / header.width)
    throw SampleError("too_large", concat("the image has ", header.width, " x ", header.height,
                                          " pixels, more than the limit of ", with_thousands(max_pixels)));
  if (decoding.exif_rotation) header.orientation = exif_orientation(file, header.kind);
  if (header.orientation >= 5) std::swap(header.height, header.width);
  return header;
}

namespace {

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

Box unite(const std::vector<Crop>& crops) {
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

config::Size stored_size(const ImageHeader& header) {
  return turned_size({header.height, header.width}, header.orientation);  // exchanges the sides again
}

// Decodes a file as it is stored. `size` is its size as stored.
std::vector<std::uint8_t> decode_stored(std::string_view file, ImageKind kind, const config::Size& size,
                                        GrayLevels& gray) {
  std::vector<std::uint8_t> pixels;
  switch (kind) {
    case ImageKind::jpeg:
      decode_jpeg(file, size.height, size.width, {}, pixels);
      return pixels;
    case ImageKind::png:
      return decode_png(file, size, gray);
    case ImageKind::webp:
      return decode_webp(file, size);
    case ImageKind::gif:
      return decode_gif(file, size);
    case ImageKind::bmp:
      return decode_bmp(file, size);
    default:
      return decode_tiff(file, size, gray);
  }
}

Image decode_file(std::string_view file, const ImageHeader& header, GrayLevels gray, ImageNotes& notes) {
  const config::Size size = stored_size(header);
  std::vector<std::uint8_t> pixels = decode_stored(file, header.kind, size, gray);
  notes.largest_gray = gray.largest;
  return {header.height, header.width, turned(std::move(pixels), size, header.orientation, 3)};
}

// Turns everything that is measured in the pixels of the image as stored.
void turn_annotations(Sample& sample, const config::Size& stored, int orientation) {
  const auto pixels = static_cast<std::size_t>(stored.height * stored.width);
  if (sample.mask.size() == pixels) sample.mask = turned(std::move(sample.mask), stored, orientation, 1);
  if (sample.depth.size() == pixels) sample.depth = turned(std::move(sample.depth), stored, orientation, 1);
  for (ObjectAnnotation& object : sample.objects) object.box = turned_box(object.box, stored, orientation);
}

}  // namespace

SourceBox DecodedPart::at(const Box& box) const {
  const double scale = eighths / 8.0;
  return {static_cast<double>(box[0]) * scale - top, static_cast<double>(box[1]) * scale - left,
          static_cast<double>(box[2]) * scale, static_cast<double>(box[3]) * scale};
}

Image decode_image(std::string_view file, std::int64_t max_pixels, const Decoding& decoding) {
  ImageNotes notes;
  return decode_file(file, check_image(file, max_pixels, decoding), {decoding.gray_range}, notes);
}

Image decode_with_notes(std::string_view file, std::int64_t max_pixels, const Decoding& decoding, ImageNotes& notes) {
  const ImageHeader header = check_image(file, max_pixels, decoding);
  notes.orientation = exif_orientation(file, header.kind);
  return decode_file(file, header, {decoding.gray_range}, notes);
}

std::uint64_t image_fingerprint(const Sample& sample) {
  if (sample.image.empty()) return fingerprint(sample.encoded);
  const auto& pixels = sample.image.pixels;
  return fingerprint({reinterpret_cast<const char*>(pixels.data()), pixels.size()},
                     static_cast<std::uint64_t>(sample.image.width));
}

void throw_no_image(const Sample& sample) {
  throw SampleError("no_image", sample.no_image.empty() ? "sample " + sample.key + " has no image" : sample.no_image);
}

Image take_image(Sample& sample, const Decoding& decoding, ImageNotes* notes) {
  if (!sample.image.empty()) return std::move(sample.image);
  if (sample.encoded.empty()) throw_no_image(sample);
  return read_at("sample " + sample.key, {}, [&] {
    ImageNotes found;
    Image image = decode_with_notes(sample.encoded, kDefaultMaxPixels, decoding, found);
    if (decoding.exif_rotation)
      turn_annotations(sample, turned_size({image.height, image.width}, found.orientation), found.orientation);
    if (notes != nullptr) *notes = found;
    sample.encoded.clear();
    return image;
  });
}

void take_size(Sample& sample, const Decoding& decoding) {
  if (!sample.image.empty()) return;
  const ImageHeader header = read_at("sample " + sample.key, {}, [&] { return check_image(sample.encoded, kDefaultMaxPixels, decoding); });
  if (decoding.exif_rotation) turn_annotations(sample, stored_size(header), header.orientation);
  sample.image.height = header.height;
  sample.image.width = header.width;
}

Image turned(const Image& image, int orientation) {
  if (orientation < 2 || orientation > 8) return image;
  const config::Size size{image.height, image.width}, shown = turned_size(size, orientation);
  return {shown.height, shown.width, turned(image.pixels, size, orientation, 3)};
}

DecodedPart decode_for(std::string_view file, const ImageHeader& header, const std::vector<Crop>& crops, bool scaling,
                       const Decoding& decoding) {
  constexpr std::size_t kept = 64 << 20;  // bytes that a thread keeps allocated
  thread_local std::vector<std::uint8_t> pixels;
  if (pixels.capacity() > kept) std::vector<std::uint8_t>().swap(pixels);
  if (header.kind != ImageKind::jpeg) {
    ImageNotes notes;
    Image image = decode_file(file, header, {decoding.gray_range}, notes);
    pixels.swap(image.pixels);
    return {{pixels.data(), image.height, image.width, image.width * 3}};
  }
  const config::Size size = stored_size(header);
  const JpegRequest request{scaling ? choose_eighths(crops) : 8, false,
                            box_before_turning(unite(crops), size, header.orientation)};
  const JpegPixels part = decode_jpeg(file, size.height, size.width, request, pixels);
  pixels = turned(std::move(pixels), {part.height, part.width}, header.orientation, 3);
  // A side that no whole number of scaled pixels fills is rounded up at its end, which turning may have moved to the beginning. In the
  // turned image, the decoded part therefore begins a fraction of a pixel earlier.
  const auto scaled = [&](std::int64_t side) { return (side * request.eighths + 7) / 8; };
  const auto [top, left, height, width] = turned_box({part.top, part.left, part.height, part.width},
                                                     {scaled(size.height), scaled(size.width)}, header.orientation);
  const Box end =
      turned_box({size.height, size.width, 0, 0}, size, header.orientation);  // of the stored image's last pixel
  const auto excess = [&](std::int64_t side) {
    return static_cast<double>(scaled(side)) - static_cast<double>(side * request.eighths) / 8;
  };
  return {{pixels.data(), height, width, width * 3},
          static_cast<double>(top) - (end[0] == 0 ? excess(header.height) : 0),
          static_cast<double>(left) - (end[1] == 0 ? excess(header.width) : 0),
          request.eighths};
}

Mask decode_mask(std::string_view file, std::int64_t max_pixels) {
  const auto fail = [](const std::string& text) {
    throw SampleError("bad_mask", "the mask is not a PNG of class indices: " + text);
  };
  try {
    const ImageHeader header = check_image(file, max_pixels);
    if (header.kind != ImageKind::png) fail("it is " + header.description);
    PngValues values = read_png_values(file, {header.height, header.width});
    if ((values.channels != 1 && !values.palette) || values.bits > 8) fail("it has colors, alpha or more than 8 bits");
    return {header.height, header.width, std::move(values.bytes)};
  } catch (const SampleError& error) {
    if (error.reason() == "bad_mask") throw;
    throw SampleError("bad_mask", std::string("the mask cannot be read: ") + error.what());
  }
}

std::vector<float> decode_depth(std::string_view file, double units, std::int64_t max_pixels) {
  try {
    const ImageHeader header = check_image(file, max_pixels);
    PngValues values;
    if (header.kind == ImageKind::png) values = read_png_values(file, {header.height, header.width});
    if (values.bits != 16 || values.channels != 1)
      bad_image("expected a 16-bit gray PNG, but it is " + header.description + " of another kind");
    std::vector<float> meters;
    for (std::size_t i = 0; i < values.bytes.size(); i += 2)
      meters.push_back(static_cast<float>((values.bytes[i] * 256 + values.bytes[i + 1]) / units));
    return meters;
  } catch (const SampleError& error) {
    throw SampleError("bad_depth", std::string("the depth cannot be read: ") + error.what());
  }
}

}  // namespace tessera
