#pragma once

#include <string>

#include "src/report/report.h"

namespace tessera::report {

/// Draws a chart as inline SVG, with one line per curve, a smoothed line on top of a noisy curve, axes with round numbers, and a legend if
/// there are several curves. If a curve's points are means of several values (Curve::ranges), a band shows the range of these values.
/// Returns an empty text if there are no points.
std::string svg_chart(const CurveChart& chart);

/// Draws the charts side by side, each in a card with its title. Charts with a single value are shown as numbers above the other charts.
/// Returns an empty text if no chart has points.
std::string chart_cards(const std::vector<CurveChart>& charts);

}  // namespace tessera::report
