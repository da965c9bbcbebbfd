#pragma once

#include <string>
#include <vector>

#include <tessera/report/task_pictures.h>

namespace tessera::report {

/// Draws a caption's words in the colors of their groups, with annotated phrases underlined, above the matrix of weights (groups
/// by tokens, darker is greater). Next to it is the image and, if the image has groups, a copy in their colors. Returns an
/// <svg> element of width 900 in its own units; text has the surrounding color.
std::string group_picture(const GroupExample& example);

/// Draws these below each other as a stand-alone SVG picture on white.
std::string group_sheet(const std::vector<GroupExample>& examples);

}  // namespace tessera::report
