#pragma once

#include <cstdint>

#include "src/data/image/decode.h"
#include <tessera/sample.h>

namespace tessera {

inline bool has_image(const Sample& sample) {
  return !sample.encoded.empty() || !sample.image.empty();
}

/// Returns a fingerprint of a sample's image as the source returns it. It covers the file's bytes if present, otherwise the
/// pixels and the width.
std::uint64_t image_fingerprint(const Sample& sample);

/// Throws the SampleError `no_image` for a sample without an image.
[[noreturn]] void throw_no_image(const Sample& sample);

/// Returns a sample's image, decoding it if necessary. If the image is turned, so are the sample's mask, depth and boxes. Throws
/// SampleError naming the key.
Image take_image(Sample& sample, const Decoding& decoding = {}, ImageNotes* notes = nullptr);

}  // namespace tessera
