#pragma once

#include <string>
#include <vector>

namespace tessera::report {

/// Returns a Markdown table with padded columns, the first aligned to the left, the others to the right. Rows shorter than the
/// header are filled with empty cells.
std::string markdown_table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows);

/// Formats a number to three significant digits without an exponent: 0.0123, 1.23, 12.3, 1,234.
std::string three_digits(double value);

}  // namespace tessera::report
