#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tessera::report {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // both above 0; others are left out
};

/// One set of axes, both logarithmic.
struct Panel {
  std::string title;
  std::string x_label;
  std::vector<Series> series;
};

/// The panels side by side, three in a row, as a stand-alone SVG picture with one legend. A name has the same color in
/// every panel.
std::string svg_plot(const std::vector<Panel>& panels);

}  // namespace tessera::report
