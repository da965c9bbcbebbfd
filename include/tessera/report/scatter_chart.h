#pragma once

#include <string>

#include <tessera/report/task_pictures.h>

namespace tessera::report {

/// Draws points in two dimensions as an inline SVG of width 520 in its own units: images as dots in their classes' colors, texts
/// as squares, with their names if there are few. Hovering shows the name of any point. Empty without points.
std::string svg_scatter(const ScatterChart& chart);

}  // namespace tessera::report
