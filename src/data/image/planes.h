#pragma once

#include <cstdint>

#include <tessera/sample.h>

namespace tessera {

/// Writes an interleaved image [H, W, 3] as planes [3, H, W] to `out`.
void write_planes(const Image& image, std::uint8_t* out);

}  // namespace tessera
