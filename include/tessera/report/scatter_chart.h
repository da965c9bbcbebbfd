#pragma once

#include <string>

#include <tessera/report/task_pictures.h>

namespace tessera::report {

/// Points on a plane as an inline SVG of width 520 in its own units: pictures as dots in their classes' colors, texts as
/// squares, with their names where there are few; names of all under the pointer. Empty without points.
std::string svg_scatter(const ScatterChart& chart);

}  // namespace tessera::report
