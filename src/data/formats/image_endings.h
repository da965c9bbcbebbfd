#pragma once

#include <array>
#include <string>
#include <vector>

namespace tessera {

/// The endings of file names of the image formats that can be decoded, in lower case, the usual ones first.
inline constexpr std::array kImageEndings = {"jpg", "jpeg", "png", "webp", "gif",   "bmp", "tif", "tiff",
                                             "jpe", "jfif", "jfi", "jif",  "pjpeg", "pjp", "apng"};

/// Returns the endings after `first`, as the default names of members or columns that hold images.
inline std::vector<std::string> with_image_endings(std::vector<std::string> first = {}) {
  first.insert(first.end(), kImageEndings.begin(), kImageEndings.end());
  return first;
}

}  // namespace tessera
