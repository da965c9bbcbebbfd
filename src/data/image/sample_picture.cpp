#include "src/data/image/sample_picture.h"

#include <tessera/base/digest.h>
#include <tessera/data/image/transforms.h>
#include <tessera/data/source.h>

namespace tessera {

std::uint64_t picture_fingerprint(const Sample& sample) {
  if (sample.image.empty()) return fingerprint(sample.encoded);
  const auto& pixels = sample.image.pixels;
  return fingerprint({reinterpret_cast<const char*>(pixels.data()), pixels.size()},
                     static_cast<std::uint64_t>(sample.image.width));
}

void throw_no_image(const Sample& sample) {
  throw SampleError("no_image", sample.no_image.empty() ? "sample " + sample.key + " has no image" : sample.no_image);
}

Image take_image(Sample& sample) {
  if (!sample.image.empty()) return std::move(sample.image);
  if (sample.encoded.empty()) throw_no_image(sample);
  try {
    Image image = decode_image(sample.encoded);
    sample.encoded.clear();
    return image;
  } catch (const SampleError& error) {
    throw SampleError(error.reason(), "sample " + sample.key + ": " + error.what());
  }
}

}  // namespace tessera
