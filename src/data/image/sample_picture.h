#pragma once

#include <tessera/data/sample.h>

namespace tessera {

inline bool has_picture(const Sample& sample) {
  return !sample.encoded.empty() || !sample.image.empty();
}

/// Throws the SampleError `no_image` of a sample without a picture.
[[noreturn]] void throw_no_image(const Sample& sample);

/// The picture of a sample, decoded if it is not yet. Throws SampleError naming the key.
Image take_image(Sample& sample);

}  // namespace tessera
