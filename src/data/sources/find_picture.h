#pragma once

#include <string>

namespace tessera {

/// Finds the file that a list means by an image name, and returns its path relative to the images' folder. Tries the name as written, then
/// without its folders. To a name without an extension, appends the usual extensions; tries a number also as COCO writes it. Returns the
/// name itself if no such file exists.
std::string find_picture(const std::string& folder, const std::string& name);

}  // namespace tessera
