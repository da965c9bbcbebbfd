#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/data/sample.h>

namespace tessera {

/// Bytes of a PNG file (lossless).
std::string encode_png(const Image& image);
/// Bytes of a JPEG file, quality in 1..100.
std::string encode_jpeg(const Image& image, int quality);
/// Bytes of an 8-bit grey PNG file: a mask of class indices, [height, width].
std::string encode_mask(const std::vector<std::uint8_t>& mask, std::int64_t height, std::int64_t width);

/// Bytes of a 16-bit grey PNG file: depths in whole millimeters, at most 65.535 m. depth [height, width] in meters.
std::string encode_depth(const std::vector<float>& depth, std::int64_t height, std::int64_t width);
/// What stands before the numbers of a .npy file, row-major; `type` is NumPy's: "<f4", "<f2", "|b1".
std::string npy_header(const std::string& type, const std::vector<std::int64_t>& shape);
/// Bytes of a .npy file: float32 [rows, columns], row-major.
std::string encode_npy(const std::vector<float>& values, std::int64_t rows, std::int64_t columns);

}  // namespace tessera
