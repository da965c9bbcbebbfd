#pragma once

#include <cstdint>

#include <tessera/data/sample.h>

namespace tessera {

/// Interleaved [H, W, 3] to planes [3, H, W] at `out`.
void write_planes(const Image& image, std::uint8_t* out);

}  // namespace tessera
