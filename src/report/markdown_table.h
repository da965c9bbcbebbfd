#pragma once

#include <string>
#include <vector>

namespace tessera::report {

/// Returns a Markdown table with padded columns, the first aligned to the left, the others to the right. Rows shorter than the
/// header are filled with empty cells.
std::string markdown_table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows);

/// Formats a number to three significant digits without an exponent: 0.0123, 1.23, 12.3, 1,234.
std::string three_digits(double value);

/// Shortens a number in text form to six significant digits ("2.302585092994046" to "2.30259"); returns any other text unchanged.
std::string six_digits(const std::string& text);

/// Formats a number to four significant digits (0.001234, 12.34). Formats a number below 0.0001 as "9.87 \u00b7 10\u207b\u2077".
std::string four_digits(double value);

}  // namespace tessera::report
