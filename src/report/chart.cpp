#include "src/report/chart.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <sstream>

#include "src/report/class_colors.h"
#include "src/report/html.h"
#include "src/report/markdown_table.h"
#include "src/report/thin_curve.h"
#include <tessera/base/error.h>

namespace tessera::report {
namespace {

constexpr double kWidth = 520, kHeight = 264, kTop = 14, kBottom = 58;
// The width of a label's widest letter on a phone (see the styles in html.cpp); margins are computed from it.
constexpr double kLetterWidth = 11.4;
// Lines drawn later are thinner, so that all lines are visible where they coincide.
constexpr double kWidestLine = 3.2, kThinnestLine = 1.4;
constexpr std::size_t kGreatestPoints = 1000, kTitledPoints = 60;

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

/// Returns a step of 1, 2 or 5 times a power of ten that fits about `wanted` times into `span`.
double round_step(double span, int wanted) {
  const double raw = span / wanted;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) return factor * power;
  }
  return 10 * power;
}

std::string tick_text(double value) {
  const double size = std::abs(value);
  const auto text = [](double number, int digits) {
    std::ostringstream out;
    out << std::setprecision(digits) << (std::abs(number) < 1e-12 ? 0.0 : number);
    return out.str();
  };
  if (size >= 999'999.5) return text(value / 1e6, 5) + "M";
  if (size >= 10'000) return text(value / 1000, 6) + "k";
  return text(value, 4);
}

struct Ticks {
  std::vector<double> values;

  static Ticks within(double low, double high, double step) {
    Ticks ticks;
    for (double v = std::ceil(low / step - 1e-6) * step; v <= high + step * 1e-6; v += step) ticks.values.push_back(v);
    return ticks;
  }
  double widest(const std::string& unit = "") const {
    std::size_t letters = 0;
    // Each character of the unit counts as two letters, because % is wide.
    for (const double value : values) letters = std::max(letters, tick_text(value).size() + 2 * unit.size());
    return kLetterWidth * static_cast<double>(letters);
  }
};

double line_width(std::size_t index, std::size_t count) {
  if (count < 2) return 1.8;
  return kWidestLine - (kWidestLine - kThinnestLine) * static_cast<double>(index) / static_cast<double>(count - 1);
}

std::string legend(const std::vector<Curve>& curves) {
  std::string html = "<div class=\"legend\">";
  for (const Curve& curve : curves)
    html += concat("<span><i style=\"background:", css_color(*curve.color), "\"></i>", escape(curve.name), "</span>");
  return html + "</div>";
}

/// Whether every curve has at most one point, so that there is no line to draw.
bool is_point(const CurveChart& chart) {
  return std::all_of(chart.curves.begin(), chart.curves.end(),
                     [](const Curve& curve) { return curve.points.size() <= 1; });
}

std::string point_numbers(const CurveChart& chart) {
  std::string html;
  for (const Curve& curve : chart.curves) {
    if (curve.points.empty()) continue;
    html += number_card(three_digits(curve.points.front().second) + chart.unit,
                        chart.curves.size() > 1 ? concat(chart.title, ": ", curve.name) : chart.title);
  }
  return html;
}

Curve thin(const Curve& curve) {
  if (curve.points.size() <= kGreatestPoints) return curve;
  ThinCurve thinned(kGreatestPoints);
  for (const auto& [step, value] : curve.points) thinned.add(step, value);
  return thinned.curve(curve.name);
}

/// Whether the values change direction often.
bool is_noisy(const std::vector<std::pair<double, double>>& points) {
  if (points.size() < 60) return false;
  std::size_t turns = 0;
  for (std::size_t i = 2; i < points.size(); ++i)
    if ((points[i].second - points[i - 1].second) * (points[i - 1].second - points[i - 2].second) < 0) ++turns;
  return turns > points.size() / 10;
}

/// Returns moving averages over a window of one fifteenth of the curve.
std::vector<std::pair<double, double>> smooth(const std::vector<std::pair<double, double>>& points) {
  const std::size_t reach = points.size() / 30;
  std::vector<std::pair<double, double>> out = points;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::size_t side = std::min({reach, i, points.size() - 1 - i});  // symmetric, so that the curve's ends do not bend
    double sum = 0;
    for (std::size_t k = i - side; k <= i + side; ++k) sum += points[k].second;
    out[i].second = sum / static_cast<double>(2 * side + 1);
  }
  return out;
}

}  // namespace

std::string svg_chart(const CurveChart& chart) {
  Range x, y;
  std::vector<Curve> curves;
  for (const Curve& curve : chart.curves) {
    const auto place = static_cast<std::int64_t>(curves.size());
    curves.push_back(thin(curve));
    curves.back().color = curve.color.value_or(place);
  }
  for (const Curve& curve : curves) {
    for (const auto& [step, value] : curve.points) {
      x.add(step);
      y.add(value);
    }
    for (const auto& [low, high] : curve.ranges) {
      y.add(low);
      y.add(high);
    }
  }
  if (x.empty()) return "";
  if (x.low == x.high) x.high = x.low + 1;
  if (y.high - y.low < 1e-12 * std::max(1.0, std::abs(y.high))) {
    const double margin = std::max(1e-9, std::abs(y.high) * 0.1);
    y = {y.low - margin, y.high + margin};
  }
  const double y_step = round_step(y.high - y.low, 5), x_step = round_step(x.high - x.low, 5);
  x.low = std::floor(x.low / x_step + 1e-9) * x_step;
  y.low = std::floor(y.low / y_step) * y_step;
  y.high = std::ceil(y.high / y_step) * y_step;
  const Ticks rows = Ticks::within(y.low, y.high, y_step), columns = Ticks::within(x.low, x.high, x_step);
  const double left = 10 + std::max(rows.widest(chart.unit), columns.widest() / 2), right = 6 + columns.widest() / 2;
  const auto px = [&](double v) { return fixed(left + (v - x.low) / (x.high - x.low) * (kWidth - left - right), 1); };
  const auto py = [&](double v) {
    return fixed(kHeight - kBottom - (v - y.low) / (y.high - y.low) * (kHeight - kTop - kBottom), 1);
  };

  std::ostringstream svg;
  svg << "<svg viewBox=\"0 0 " << kWidth << " " << kHeight << "\" role=\"img\" aria-label=\"" << escape(chart.title)
      << "\">";
  for (const double v : rows.values)
    svg << "<line class=\"axis\" x1=\"" << left << "\" x2=\"" << kWidth - right << "\" y1=\"" << py(v) << "\" y2=\""
        << py(v) << "\"/><text x=\"" << left - 7 << "\" y=\"" << py(v) << "\" dy=\".35em\" text-anchor=\"end\">"
        << tick_text(v) << chart.unit << "</text>";
  for (const double v : columns.values)
    svg << "<text x=\"" << px(v) << "\" y=\"" << kHeight - 34 << "\" text-anchor=\"middle\">" << tick_text(v)
        << "</text>";
  for (const double v : chart.marks)
    if (v >= x.low && v <= x.high)
      svg << "<line class=\"axis\" stroke-dasharray=\"4\" x1=\"" << px(v) << "\" x2=\"" << px(v) << "\" y1=\"" << kTop << "\" y2=\""
          << kHeight - kBottom << "\"/><text x=\"" << px(v) << "\" y=\"" << kTop << "\" dx=\"4\">changed</text>";
  svg << "<text x=\"" << (left + kWidth - right) / 2 << "\" y=\"" << kHeight - 10 << "\" text-anchor=\"middle\">"
      << escape(chart.x_name) << "</text>";
  const auto line = [&](const std::vector<std::pair<double, double>>& points, std::int64_t color, double width,
                        double opacity) {
    svg << "<polyline fill=\"none\" stroke=\"" << css_color(color) << "\" stroke-width=\"" << width
        << "\" stroke-opacity=\"" << opacity << "\" stroke-linejoin=\"round\" points=\"";
    for (const auto& [step, value] : points) svg << px(step) << "," << py(value) << " ";
    svg << "\"/>";
  };
  const auto band = [&](const Curve& curve, std::int64_t color) {
    svg << "<path fill=\"" << css_color(color) << "\" fill-opacity=\"0.2\" d=\"";
    for (std::size_t i = 0; i < curve.ranges.size(); ++i)
      svg << (i == 0 ? "M" : "L") << px(curve.points[i].first) << " " << py(curve.ranges[i].second);
    for (std::size_t i = curve.ranges.size(); i-- > 0;)
      svg << "L" << px(curve.points[i].first) << " " << py(curve.ranges[i].first);
    svg << "Z\"/>";
  };
  for (std::size_t i = 0; i < curves.size(); ++i) {
    const auto& points = curves[i].points;
    const std::int64_t color = *curves[i].color;
    if (!curves[i].ranges.empty()) band(curves[i], color);
    if (points.size() == 1)
      svg << "<circle r=\"2.5\" cx=\"" << px(points[0].first) << "\" cy=\"" << py(points[0].second) << "\" fill=\""
          << css_color(color) << "\"/>";
    const bool noisy = is_noisy(points);
    const double width = line_width(i, curves.size());
    line(points, color, noisy ? 1 : width, noisy ? 0.35 : 1);
    if (noisy) line(smooth(points), color, width, 1);
    // Invisible circles show a curve's values under the pointer.
    for (std::size_t p = 0; p < points.size(); p += 1 + points.size() / kTitledPoints)
      svg << "<circle r=\"6\" fill=\"none\" pointer-events=\"all\" cx=\"" << px(points[p].first) << "\" cy=\"" << py(points[p].second)
          << "\"><title>"
          << escape(concat(curves[i].name, ", ", chart.x_name, " ", tick_text(points[p].first), ": ",
                           three_digits(points[p].second), chart.unit))
          << "</title></circle>";
  }
  svg << "</svg>";
  return svg.str() + (curves.size() > 1 ? legend(curves) : "");
}

std::string chart_cards(const std::vector<CurveChart>& charts) {
  std::string numbers, html;
  for (const CurveChart& chart : charts) {
    if (is_point(chart)) {
      numbers += point_numbers(chart);
      continue;
    }
    html += concat("<div class=\"card\"><h3 style=\"margin:0 0 8px\">", escape(chart.title), "</h3>", svg_chart(chart),
                   "</div>");
  }
  return (numbers.empty() ? "" : "<div class=\"numbers\">" + numbers + "</div>") +
         (html.empty() ? "" : "<div class=\"grid charts\">" + html + "</div>");
}

}  // namespace tessera::report
