#pragma once

#include <string>

#include <tessera/evaluation/report.h>

namespace tessera::report {

/// Inline SVG: a light line per curve, a smoothed one over it when it is noisy, axes with round numbers, a legend for
/// several.
std::string svg_chart(const CurveChart& chart);

}  // namespace tessera::report
