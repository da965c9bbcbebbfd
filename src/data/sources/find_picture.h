#pragma once

#include <string>

namespace tessera {

/// Finds the file for an image name in a list, relative to the images' folder. Tries the name as written, then without its
/// folders; a name without an extension is tried with the usual ones, and a number also as COCO writes it. Returns the name
/// itself if no such file exists.
std::string find_picture(const std::string& folder, const std::string& name);

}  // namespace tessera
