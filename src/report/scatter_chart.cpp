#include <algorithm>
#include <limits>

#include "src/report/class_colors.h"
#include "src/report/html.h"
#include "src/report/scatter_chart.h"
#include <tessera/base/error.h>

namespace tessera::report {
namespace {

constexpr double kChartWidth = 520, kChartHeight = 420, kScatterMargin = 26;
constexpr std::size_t kMostNames = 40;

/// Maps the range of the values to the range of the drawing.
class Axis {
 public:
  Axis(double from, double to) : from_(from), to_(to) {}
  void see(double value) {
    least_ = std::min(least_, value);
    greatest_ = std::max(greatest_, value);
  }
  double place(double value) const {
    const double share = greatest_ > least_ ? (value - least_) / (greatest_ - least_) : 0.5;
    return from_ + share * (to_ - from_);
  }

 private:
  double from_, to_;
  double least_ = std::numeric_limits<double>::infinity(), greatest_ = -least_;
};

std::string color_of_point(const ScatterChart::Point& point, const std::vector<Color>& colors) {
  if (point.class_index >= 0 && point.class_index < std::ssize(colors))
    return css_color(colors[static_cast<std::size_t>(point.class_index)]);
  return point.is_text ? "var(--bad)" : "var(--accent)";
}

std::string dot(double x, double y, const ScatterChart::Point& point, const std::string& color) {
  const std::string title = "<title>" + escape(point.name) + "</title>";
  if (!point.is_text)
    return concat("<circle cx=\"", fixed(x, 1), "\" cy=\"", fixed(y, 1), "\" r=\"3\" fill=\"", color,
                  "\" fill-opacity=\".65\">", title, "</circle>");
  return concat("<rect x=\"", fixed(x - 5, 1), "\" y=\"", fixed(y - 5, 1),
                "\" width=\"10\" height=\"10\" rx=\"2\" fill=\"", color,
                "\" stroke=\"var(--ink)\" stroke-width=\"1.5\">", title, "</rect>");
}

/// Draws the name next to the point, on the side where there is room.
std::string name_beside(double x, double y, const std::string& name) {
  const bool left = x > kChartWidth * 0.7;
  return concat("<text x=\"", fixed(left ? x - 9 : x + 9, 1), "\" y=\"", fixed(y + 4, 1), "\" text-anchor=\"",
                left ? "end" : "start", "\" style=\"fill:var(--ink)\">", escape(name), "</text>");
}

}  // namespace

std::string svg_scatter(const ScatterChart& chart) {
  if (chart.points.empty()) return "";
  const std::vector<Color> colors = class_colors(chart.class_names);
  Axis across(kScatterMargin, kChartWidth - kScatterMargin), up(kChartHeight - kScatterMargin, kScatterMargin);
  for (const auto& point : chart.points) {
    across.see(point.x);
    up.see(point.y);
  }
  std::string pictures, texts, names;
  std::size_t count = 0;
  for (const auto& point : chart.points) {
    const double x = across.place(point.x), y = up.place(point.y);
    (point.is_text ? texts : pictures) += dot(x, y, point, color_of_point(point, colors));
    if (point.is_text) names += name_beside(x, y, point.name);
    count += point.is_text ? 1 : 0;
  }
  return concat("<svg viewBox=\"0 0 ", kChartWidth, " ", kChartHeight, "\" role=\"img\" aria-label=\"", escape(chart.title),
                "\">", pictures, texts, count <= kMostNames ? names : "", "</svg>");
}

}  // namespace tessera::report
