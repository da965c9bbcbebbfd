#pragma once

#include <string>

#include <tessera/report/report.h>

namespace tessera::report {

/// Draws a chart as inline SVG: one line per curve (with a band if its points are means of ranges), a smoothed line over a noisy
/// one, axes with round numbers, and a legend if there are several curves. Empty without points.
std::string svg_chart(const CurveChart& chart);

/// Draws the charts side by side, each in a card with its title. Charts of single values become numbers above them. Empty if no
/// chart has points.
std::string chart_cards(const std::vector<CurveChart>& charts);

}  // namespace tessera::report
