#include "src/report/markdown_table.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include <tessera/base/text.h>

namespace tessera::report {
namespace {

/// Returns the number of characters of a UTF-8 text.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::string markdown_table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const std::string& cell : header) widths.push_back(std::max<std::size_t>(3, width_of(cell)));
  for (const auto& row : rows)
    for (std::size_t i = 0; i < std::min(row.size(), widths.size()); ++i)
      widths[i] = std::max(widths[i], width_of(row[i]));

  std::ostringstream out;
  const auto line = [&](const std::vector<std::string>& cells) {
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const std::string cell = i < cells.size() ? cells[i] : "";
      const std::string space(widths[i] - width_of(cell), ' ');
      out << "| " << (i == 0 ? cell + space : space + cell) << " ";
    }
    out << "|\n";
  };
  line(header);
  for (std::size_t i = 0; i < widths.size(); ++i)
    out << "| " << std::string(widths[i] - 1, '-') << (i == 0 ? "- " : ": ");
  out << "|\n";
  for (const auto& row : rows) line(row);
  return out.str();
}

std::string three_digits(double value) {
  if (!std::isfinite(value)) return "-";
  if (std::abs(value) >= 999.5) return with_thousands(std::llround(value));
  const int exponent = value == 0 ? 0 : static_cast<int>(std::floor(std::log10(std::abs(value) * 1.0005)));
  std::ostringstream out;
  out << std::fixed << std::setprecision(std::clamp(2 - exponent, 0, 9)) << value;
  return out.str();
}

}  // namespace tessera::report
