#pragma once

#include <string>
#include <vector>

#include <tessera/report/task_pictures.h>

namespace tessera::report {

/// Draws a caption's words in the colors of their groups, with annotated phrases underlined. Below the words is the matrix of weights
/// (groups by tokens; darker means greater). Next to the words and the matrix are the image and, if the image has groups, a copy in the
/// colors of the groups. Returns an <svg> element whose viewBox is 900 units wide. The text takes the color of its surroundings.
std::string group_picture(const GroupExample& example);

/// Draws the pictures of all examples, one below the other, as a stand-alone SVG file with a white background.
std::string group_sheet(const std::vector<GroupExample>& examples);

}  // namespace tessera::report
