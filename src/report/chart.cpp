#include <tessera/report/chart.h>

#include <iomanip>
#include <limits>
#include <sstream>

#include <tessera/report/html.h>
#include <tessera/report/thin_curve.h>
#include <tessera/base/error.h>

namespace tessera::report {
namespace {

constexpr double kWidth = 520, kHeight = 240, kLeft = 54, kRight = 14, kTop = 12, kBottom = 30;
constexpr std::size_t kGreatestPoints = 1000;

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

/// 1, 2 or 5 times a power of ten, so that about `wanted` of them fit.
double round_step(double span, int wanted) {
  const double raw = span / wanted;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) return factor * power;
  }
  return 10 * power;
}

std::string tick_text(double value) {
  std::ostringstream out;
  const double size = std::abs(value);
  if (size >= 10000 && std::fmod(value, 1000.0) == 0) {
    out << value / 1000 << "k";
  } else {
    out << std::setprecision(4) << (size < 1e-12 ? 0.0 : value);
  }
  return out.str();
}

Curve thin(const Curve& curve) {
  if (curve.points.size() <= kGreatestPoints) return curve;
  ThinCurve thinned(kGreatestPoints);
  for (const auto& [step, value] : curve.points) thinned.add(step, value);
  return thinned.curve(curve.name);
}

/// Whether the values go up and down rather than along a line.
bool is_noisy(const std::vector<std::pair<double, double>>& points) {
  if (points.size() < 60) return false;
  std::size_t turns = 0;
  for (std::size_t i = 2; i < points.size(); ++i)
    if ((points[i].second - points[i - 1].second) * (points[i - 1].second - points[i - 2].second) < 0) ++turns;
  return turns > points.size() / 10;
}

/// Means over a window of a fifteenth of the curve.
std::vector<std::pair<double, double>> smooth(const std::vector<std::pair<double, double>>& points) {
  const std::size_t reach = points.size() / 30;
  std::vector<std::pair<double, double>> out = points;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::size_t side = std::min({reach, i, points.size() - 1 - i});  // symmetric, so that the ends do not bend
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
  for (const Curve& curve : chart.curves) curves.push_back(thin(curve));
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
  y.low = std::floor(y.low / y_step) * y_step;
  y.high = std::ceil(y.high / y_step) * y_step;
  const auto px = [&](double v) {
    return fixed(kLeft + (v - x.low) / (x.high - x.low) * (kWidth - kLeft - kRight), 1);
  };
  const auto py = [&](double v) {
    return fixed(kHeight - kBottom - (v - y.low) / (y.high - y.low) * (kHeight - kTop - kBottom), 1);
  };

  std::ostringstream svg;
  svg << "<svg viewBox=\"0 0 " << kWidth << " " << kHeight << "\" role=\"img\" aria-label=\"" << escape(chart.title)
      << "\">";
  for (double v = y.low; v <= y.high + y_step / 2; v += y_step) {
    svg << "<line class=\"axis\" x1=\"" << kLeft << "\" x2=\"" << kWidth - kRight << "\" y1=\"" << py(v) << "\" y2=\""
        << py(v) << "\"/><text x=\"" << kLeft - 7 << "\" y=\"" << py(v) << "\" dy=\".35em\" text-anchor=\"end\">"
        << tick_text(v) << "</text>";
  }
  for (double v = std::ceil(x.low / x_step) * x_step; v <= x.high + x_step * 1e-6; v += x_step) {
    svg << "<text x=\"" << px(v) << "\" y=\"" << kHeight - 10 << "\" text-anchor=\"middle\">" << tick_text(v)
        << "</text>";
  }
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
    const auto color = static_cast<std::int64_t>(i);
    if (!curves[i].ranges.empty()) band(curves[i], color);
    if (points.size() == 1)
      svg << "<circle r=\"2.5\" cx=\"" << px(points[0].first) << "\" cy=\"" << py(points[0].second) << "\" fill=\""
          << css_color(color) << "\"/>";
    const bool noisy = is_noisy(points);
    line(points, color, noisy ? 1 : 1.8, noisy ? 0.35 : 1);
    if (noisy) line(smooth(points), color, 1.8, 1);
  }
  svg << "</svg>";
  if (curves.size() > 1) {
    svg << "<div class=\"legend\">";
    for (std::size_t i = 0; i < curves.size(); ++i) {
      svg << "<span><i style=\"background:" << css_color(static_cast<std::int64_t>(i)) << "\"></i>"
          << escape(curves[i].name) << "</span>";
    }
    svg << "</div>";
  }
  return svg.str();
}

std::string chart_cards(const std::vector<CurveChart>& charts) {
  std::string html;
  for (const CurveChart& chart : charts) {
    const std::string svg = svg_chart(chart);
    if (!svg.empty())
      html += concat("<div class=\"card\"><h3 style=\"margin:0 0 8px\">", escape(chart.title), "</h3>", svg, "</div>");
  }
  return html.empty() ? "" : "<div class=\"grid charts\">" + html + "</div>";
}

}  // namespace tessera::report
