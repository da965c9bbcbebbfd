#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/sample.h>

namespace tessera {

/// Returns the bytes of a PNG file (lossless).
std::string encode_png(const Image& image);
/// Returns the bytes of a JPEG file; quality is in 1..100.
std::string encode_jpeg(const Image& image, int quality);
/// Returns the bytes of an 8-bit gray PNG file; mask holds class indices, [height, width].
std::string encode_mask(const std::vector<std::uint8_t>& mask, std::int64_t height, std::int64_t width);

/// Returns the bytes of a 16-bit gray PNG file with depths in whole units, of which a meter has `units`. Larger depths than 65535 units are
/// reduced to it. `depth` is [height, width] in meters.
std::string encode_depth(const std::vector<float>& depth, std::int64_t height, std::int64_t width, double units);
/// Returns the header of a row-major .npy file; `type` is NumPy's name of the element type: "<f4", "<f2", "|b1".
std::string npy_header(const std::string& type, const std::vector<std::int64_t>& shape);
/// Returns the bytes of a .npy file: float32 [rows, columns], row-major.
std::string encode_npy(const std::vector<float>& values, std::int64_t rows, std::int64_t columns);

}  // namespace tessera
