#include "src/report/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iomanip>
#include <limits>
#include <sstream>

#include "src/report/html.h"

namespace tessera::report {
namespace {

constexpr double kPanelWidth = 330, kPanelHeight = 270, kPanelLeft = 52, kPanelRight = 12, kPanelTop = 34, kPanelBottom = 44;
constexpr double kLegendHeight = 34;
constexpr std::size_t kPanelsPerRow = 3;
// These colors are distinct for color-blind readers, too (Okabe and Ito's set without yellow).
constexpr std::array<const char*, 8> kSeriesColors = {"#000000", "#d55e00", "#0072b2", "#009e73",
                                                 "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f"};

bool drawable(const std::pair<double, double>& point) {
  return point.first > 0 && point.second > 0 && std::isfinite(point.first) && std::isfinite(point.second);
}

/// A logarithmic axis whose ends are powers of its base.
struct PowerAxis {
  double base;
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  double power(double value) const { return std::log(value) / std::log(base); }
  void add(double value) {
    low = std::min(low, power(value));
    high = std::max(high, power(value));
  }
  void round() {
    constexpr double kTolerance = 1e-9;
    low = std::floor(low + kTolerance);
    high = std::ceil(high - kTolerance);
    if (high <= low) high = low + 1;
  }
  double share(double value) const { return (power(value) - low) / (high - low); }
};

std::string power_text(double value) {
  std::ostringstream out;
  if (value >= 1e5 || value < 1e-3)
    out << "1e" << std::lround(std::log10(value));
  else
    out << std::setprecision(6) << value;
  return out.str();
}

std::size_t color_of(const std::string& name, std::vector<std::string>& names) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) names.push_back(name);
  return static_cast<std::size_t>(std::distance(names.begin(), std::find(names.begin(), names.end(), name)));
}

void draw(std::ostream& svg, const Panel& panel, std::vector<std::string>& names) {
  PowerAxis x{2}, y{10};
  for (const Series& series : panel.series) {
    for (const auto& point : series.points) {
      if (!drawable(point)) continue;
      x.add(point.first);
      y.add(point.second);
    }
  }
  svg << "<text x=\"" << kPanelWidth / 2 << "\" y=\"18\" class=\"title\">" << escape(panel.title) << "</text>\n";
  if (x.low > x.high) return;
  x.round();
  y.round();
  const double bottom = kPanelHeight - kPanelBottom, right = kPanelWidth - kPanelRight;
  const auto px = [&](double value) { return kPanelLeft + x.share(value) * (right - kPanelLeft); };
  const auto py = [&](double value) { return bottom - y.share(value) * (bottom - kPanelTop); };

  for (double power = y.low; power <= y.high; ++power) {
    const double at = py(std::pow(y.base, power));
    svg << "<path class=\"grid\" d=\"M" << kPanelLeft << " " << at << "H" << right << "\"/><text x=\"" << kPanelLeft - 6
        << "\" y=\"" << at + 4 << "\" class=\"y\">" << power_text(std::pow(y.base, power)) << "</text>\n";
  }
  const double step = std::max(1.0, std::ceil((x.high - x.low) / 7));
  for (double power = x.low; power <= x.high; power += step) {
    const double at = px(std::pow(x.base, power));
    svg << "<path class=\"grid\" d=\"M" << at << " " << kPanelTop << "V" << bottom << "\"/><text x=\"" << at << "\" y=\""
        << bottom + 16 << "\" class=\"x\">" << power_text(std::pow(x.base, power)) << "</text>\n";
  }
  svg << "<text x=\"" << (kPanelLeft + right) / 2 << "\" y=\"" << bottom + 34 << "\" class=\"x\">" << escape(panel.x_label)
      << "</text>\n";
  for (const Series& series : panel.series) {
    const char* const color = kSeriesColors[color_of(series.name, names) % kSeriesColors.size()];
    std::ostringstream points, marks;
    points << std::fixed << std::setprecision(1);
    marks << std::fixed << std::setprecision(1);
    for (const auto& point : series.points) {
      if (!drawable(point)) continue;
      points << px(point.first) << "," << py(point.second) << " ";
      marks << "<circle cx=\"" << px(point.first) << "\" cy=\"" << py(point.second) << "\" r=\"2.6\" fill=\"" << color
            << "\"/>";
    }
    svg << "<polyline fill=\"none\" stroke=\"" << color << "\" stroke-width=\"1.6\" points=\"" << points.str()
        << "\"/>" << marks.str() << "\n";
  }
}

}  // namespace

std::string svg_plot(const std::vector<Panel>& panels) {
  const std::size_t columns = std::min(panels.size(), kPanelsPerRow);
  const std::size_t rows = (panels.size() + kPanelsPerRow - 1) / kPanelsPerRow;
  const double width = kPanelWidth * static_cast<double>(columns);
  const double height = kPanelHeight * static_cast<double>(rows) + kLegendHeight;
  std::ostringstream svg;
  svg << std::fixed << std::setprecision(1) << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << width
      << " " << height << "\" width=\"" << width << "\" height=\"" << height << "\">\n"
      << "<style>text{font:11px sans-serif;fill:#222}.title{font-size:13px;text-anchor:middle}.x{text-anchor:middle}"
         ".y{text-anchor:end}.grid{stroke:#ddd;fill:none}</style>\n"
      << "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
  std::vector<std::string> names;
  for (std::size_t i = 0; i < panels.size(); ++i) {
    svg << "<g transform=\"translate(" << kPanelWidth * static_cast<double>(i % kPanelsPerRow) << " "
        << kPanelHeight * static_cast<double>(i / kPanelsPerRow) << ")\">\n";
    draw(svg, panels[i], names);
    svg << "</g>\n";
  }
  const double entry = (width - kPanelLeft) / static_cast<double>(std::max<std::size_t>(1, names.size()));
  for (std::size_t i = 0; i < names.size(); ++i) {
    const double at = kPanelLeft + entry * static_cast<double>(i);
    svg << "<circle cx=\"" << at << "\" cy=\"" << height - 18 << "\" r=\"4\" fill=\"" << kSeriesColors[i % kSeriesColors.size()]
        << "\"/><text x=\"" << at + 9 << "\" y=\"" << height - 14 << "\">" << escape(names[i]) << "</text>\n";
  }
  svg << "</svg>\n";
  return svg.str();
}

}  // namespace tessera::report
