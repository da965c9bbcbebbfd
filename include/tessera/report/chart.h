#pragma once

#include <string>

#include <tessera/report/report.h>

namespace tessera::report {

/// Inline SVG: a light line per curve (a band where points stand for ranges), a smoothed one over it when it is noisy,
/// axes with round numbers, a legend for several. Empty without points.
std::string svg_chart(const CurveChart& chart);

/// The charts side by side, each in a card with its title; those of single values as numbers above them. Empty when none has
/// points.
std::string chart_cards(const std::vector<CurveChart>& charts);

}  // namespace tessera::report
