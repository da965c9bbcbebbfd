#pragma once

#include <string>

#include <tessera/report/task_pictures.h>

namespace tessera::report {

/// Draws points in two dimensions as an inline SVG whose viewBox is 520 units wide. Images are dots in their classes' colors; texts are
/// squares, with their names if there are few. Hovering shows the name of any point. Returns an empty text if there are no points.
std::string svg_scatter(const ScatterChart& chart);

}  // namespace tessera::report
