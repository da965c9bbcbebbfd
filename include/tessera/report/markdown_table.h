#pragma once

#include <string>
#include <vector>

namespace tessera::report {

/// A Markdown table with padded columns: the first to the left, the others to the right. Rows shorter than the header
/// are filled with empty cells.
std::string markdown_table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows);

/// Three significant digits without an exponent: 0.0123, 1.23, 12.3, 1,234.
std::string three_digits(double value);

/// The number in a text to six significant digits, where it has more: "2.302585092994046" as "2.30259"; anything else as it is.
std::string six_digits(const std::string& text);

/// Four significant digits: 0.001234, 12.34, and "9.87 \u00b7 10\u207b\u2077" below a ten-thousandth.
std::string four_digits(double value);

}  // namespace tessera::report
