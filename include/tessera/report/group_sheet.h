#pragma once

#include <string>
#include <vector>

#include <tessera/report/task_pictures.h>

namespace tessera::report {

/// A caption's words in the colors of their groups, annotated phrases underlined, above the matrix of weights: groups by
/// tokens, the darker the greater. Beside it the picture, and the picture in the colors of its own groups where it has
/// some. An <svg> element of width 900 in its own units, its text in the color of what surrounds it.
std::string group_picture(const GroupExample& example);

/// These below each other, as a stand-alone SVG picture on white.
std::string group_sheet(const std::vector<GroupExample>& examples);

}  // namespace tessera::report
