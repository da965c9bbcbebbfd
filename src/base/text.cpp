#include <tessera/base/text.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iomanip>
#include <numeric>
#include <sstream>

namespace tessera {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row.back();
}

struct Utf8Step {
  std::size_t length;
  bool valid;
};

// Measures the well-formed character at `i`, or the maximal invalid sequence of bytes there (Unicode 3.9, table 3-7).
Utf8Step utf8_step(std::string_view s, std::size_t i) {
  const auto byte = [&](std::size_t k) { return static_cast<std::uint8_t>(s[k]); };
  const std::uint8_t lead = byte(i);
  if (lead < 0x80) return {1, true};
  std::size_t length = 0;
  std::uint8_t low = 0x80, high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) length = 2;
  else if (lead >= 0xE0 && lead <= 0xEF) length = 3;
  else if (lead >= 0xF0 && lead <= 0xF4) length = 4;
  else return {1, false};
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (std::size_t k = 1; k < length; ++k) {
    if (i + k >= s.size() || byte(i + k) < low || byte(i + k) > high) return {k, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true};
}

}  // namespace

std::string nearest_name(std::string_view wanted, const std::vector<std::string>& names) {
  std::string best;
  std::size_t best_distance = wanted.size() / 2 + 1;
  for (const std::string& name : names) {
    const std::size_t distance = edit_distance(wanted, name);
    if (distance < best_distance) {
      best_distance = distance;
      best = name;
    }
  }
  return best;
}

std::string join_names(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) out += i + 1 == names.size() ? " and " : ", ";
    out += names[i];
  }
  return out;
}

std::string suggestion(std::string_view wanted, const std::vector<std::string>& names) {
  const std::string near = nearest_name(wanted, names);
  if (!near.empty()) return ": did you mean " + near + "?";
  return names.empty() ? "" : "; known: " + join_names(names);
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::size_t start = 0;
  while (true) {
    const std::size_t end = text.find(separator, start);
    parts.emplace_back(text.substr(start, end - start));
    if (end == std::string_view::npos) return parts;
    start = end + 1;
  }
}

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines = split(text, '\n');
  if (lines.back().empty()) lines.pop_back();
  for (std::string& line : lines)
    if (line.ends_with('\r')) line.pop_back();
  return lines;
}

std::string_view strip(std::string_view text) {
  constexpr std::string_view space = " \t\r\n\f\v";
  const std::size_t first = text.find_first_not_of(space);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(space) - first + 1);
}

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    std::uint64_t eight = ~std::uint64_t{0};
    if (text.size() - i >= sizeof(eight)) std::memcpy(&eight, text.data() + i, sizeof(eight));
    if ((eight & 0x8080'8080'8080'8080U) == 0) {  // eight characters of ASCII
      i += sizeof(eight);
      continue;
    }
    const Utf8Step step = utf8_step(text, i);
    if (!step.valid) return false;
    i += step.length;
  }
  return true;
}

std::string repair_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Step step = utf8_step(text, i);
    if (step.valid) out.append(text.substr(i, step.length));
    else out += "\xEF\xBF\xBD";
    i += step.length;
  }
  return out;
}

std::string with_thousands(long long value) {
  std::string digits = std::to_string(value);
  const std::size_t first = digits[0] == '-' ? 1 : 0;
  for (std::size_t i = digits.size(); i > first + 3;) digits.insert(i -= 3, ",");
  return digits;
}

std::string fixed(double value, int digits) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value;
  return out.str();
}

std::string format_bytes(double bytes) {
  constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < units.size()) {
    bytes /= 1024;
    ++unit;
  }
  std::array<char, 32> out{};
  std::snprintf(out.data(), out.size(), unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
  return out.data();
}

std::string format_duration(double seconds) {
  std::array<char, 32> out{};
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (seconds >= 3600) std::snprintf(out.data(), out.size(), "%lldh %02lldm %02llds", whole / 3600, whole / 60 % 60, whole % 60);
  else if (seconds >= 60) std::snprintf(out.data(), out.size(), "%lldm %02llds", whole / 60, whole % 60);
  else std::snprintf(out.data(), out.size(), "%.1fs", seconds);
  return out.data();
}

}  // namespace tessera
