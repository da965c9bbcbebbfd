#pragma once

#include <string>

namespace tessera {

/// The file that a list means by a picture's name, relative to the folder of the pictures: the name, without its folders,
/// with a usual ending where it has none, or, a number, as COCO writes it. The name itself where no such file is there.
std::string find_picture(const std::string& folder, const std::string& name);

}  // namespace tessera
