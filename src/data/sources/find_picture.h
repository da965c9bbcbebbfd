#pragma once

#include <string>

namespace tessera {

/// Returns the file, relative to the images' folder, that an image name from a list refers to. Tries the name as written, then
/// without its folders. Tries a name without an extension with the usual extensions, and a number also as COCO writes it. Returns
/// the name itself if no such file exists.
std::string find_picture(const std::string& folder, const std::string& name);

}  // namespace tessera
