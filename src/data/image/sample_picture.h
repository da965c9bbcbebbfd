#pragma once

#include <cstdint>

#include <tessera/data/sample.h>

namespace tessera {

inline bool has_picture(const Sample& sample) {
  return !sample.encoded.empty() || !sample.image.empty();
}

/// Stands for a sample's picture as the source gives it: the file's bytes where there are any, else pixels and width.
std::uint64_t picture_fingerprint(const Sample& sample);

/// Throws the SampleError `no_image` of a sample without a picture.
[[noreturn]] void throw_no_image(const Sample& sample);

/// The picture of a sample, decoded if it is not yet. Throws SampleError naming the key.
Image take_image(Sample& sample);

}  // namespace tessera
