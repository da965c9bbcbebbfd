#include "src/data/image/sample_image.h"

#include "src/base/digest.h"
#include "src/data/image/orientation.h"
#include <tessera/data/source.h>

namespace tessera {

std::uint64_t image_fingerprint(const Sample& sample) {
  if (sample.image.empty()) return fingerprint(sample.encoded);
  const auto& pixels = sample.image.pixels;
  return fingerprint({reinterpret_cast<const char*>(pixels.data()), pixels.size()},
                     static_cast<std::uint64_t>(sample.image.width));
}

void throw_no_image(const Sample& sample) {
  throw SampleError("no_image", sample.no_image.empty() ? "sample " + sample.key + " has no image" : sample.no_image);
}

namespace {

// Turns everything that is measured in the pixels of the image as stored.
void turn_annotations(Sample& sample, const config::Size& stored, int orientation) {
  const auto pixels = static_cast<std::size_t>(stored.height * stored.width);
  if (sample.mask.size() == pixels) sample.mask = turned(std::move(sample.mask), stored, orientation, 1);
  if (sample.depth.size() == pixels) sample.depth = turned(std::move(sample.depth), stored, orientation, 1);
  for (ObjectAnnotation& object : sample.objects) object.box = turned_box(object.box, stored, orientation);
}

}  // namespace

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

}  // namespace tessera
