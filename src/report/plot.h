#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tessera::report {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x, y; points with x <= 0 or y <= 0 are left out (logarithmic axes)
};

/// A plot with two logarithmic axes.
struct Panel {
  std::string title;
  std::string x_label;
  std::vector<Series> series;
};

/// Draws the panels side by side, three in a row, as a stand-alone SVG file with one legend. A name has the same color in every panel.
std::string svg_plot(const std::vector<Panel>& panels);

}  // namespace tessera::report
