#pragma once

#include <string>

#include <tessera/report/report.h>

namespace tessera::report {

/// Draws a chart as inline SVG: one line per curve, a smoothed line over a noisy curve, axes with round numbers, and a legend if there are
/// several curves. A curve whose points are means of ranges gets a band. Returns an empty text if there are no points.
std::string svg_chart(const CurveChart& chart);

/// Draws the charts side by side, each in a card with its title. Charts with a single value are shown as numbers above the other charts.
/// Returns an empty text if no chart has points.
std::string chart_cards(const std::vector<CurveChart>& charts);

}  // namespace tessera::report
