#include "src/evaluation/report/chart.h"

#include <iomanip>
#include <limits>
#include <sstream>

#include "src/evaluation/report/html.h"

namespace tessera::report {
namespace {

constexpr double kWidth = 520, kHeight = 240, kLeft = 54, kRight = 14, kTop = 12, kBottom = 30;
constexpr std::size_t kGreatestPoints = 600;

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

/// At most kGreatestPoints points, means of equal stretches.
std::vector<std::pair<double, double>> thin(const std::vector<std::pair<double, double>>& points) {
  if (points.size() <= kGreatestPoints) return points;
  std::vector<std::pair<double, double>> out;
  for (std::size_t i = 0; i < kGreatestPoints; ++i) {
    const std::size_t begin = i * points.size() / kGreatestPoints, end = (i + 1) * points.size() / kGreatestPoints;
    std::pair<double, double> sum{0, 0};
    for (std::size_t k = begin; k < end; ++k) {
      sum.first += points[k].first;
      sum.second += points[k].second;
    }
    const auto count = static_cast<double>(end - begin);
    out.emplace_back(sum.first / count, sum.second / count);
  }
  return out;
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
  for (const Curve& curve : chart.curves) {
    for (const auto& [step, value] : curve.points) {
      x.add(step);
      y.add(value);
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
  const auto line = [&](const std::vector<std::pair<double, double>>& points, std::int64_t colour, double width,
                        double opacity) {
    svg << "<polyline fill=\"none\" stroke=\"" << css_colour(colour) << "\" stroke-width=\"" << width
        << "\" stroke-opacity=\"" << opacity << "\" stroke-linejoin=\"round\" points=\"";
    for (const auto& [step, value] : points) svg << px(step) << "," << py(value) << " ";
    svg << "\"/>";
  };
  for (std::size_t i = 0; i < chart.curves.size(); ++i) {
    const auto points = thin(chart.curves[i].points);
    const auto colour = static_cast<std::int64_t>(i);
    const bool noisy = points.size() >= 60;
    line(points, colour, noisy ? 1 : 1.8, noisy ? 0.35 : 1);
    if (noisy) line(smooth(points), colour, 1.8, 1);
  }
  svg << "</svg>";
  if (chart.curves.size() > 1) {
    svg << "<div class=\"legend\">";
    for (std::size_t i = 0; i < chart.curves.size(); ++i) {
      svg << "<span><i style=\"background:" << css_colour(static_cast<std::int64_t>(i)) << "\"></i>"
          << escape(chart.curves[i].name) << "</span>";
    }
    svg << "</div>";
  }
  return svg.str();
}

}  // namespace tessera::report
