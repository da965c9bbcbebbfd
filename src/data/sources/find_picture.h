#pragma once

#include <string>

namespace tessera {

/// Finds the image file that a name in a list stands for, and returns the file's path relative to `folder`. Tries the name as written, then
/// the name without its folders. If the name has no extension, appends each of the usual extensions; if it is also a number, tries the
/// number with leading zeros too, as COCO writes it. Returns the name itself if no such file exists.
std::string find_picture(const std::string& folder, const std::string& name);

}  // namespace tessera
