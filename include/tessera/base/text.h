#pragma once

#include <algorithm>
#include <concepts>
#include <ranges>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Returns the name nearest to `wanted` by edit distance. Returns an empty string if even that name's distance exceeds half of
/// `wanted`'s length.
std::string nearest_name(std::string_view wanted, const std::vector<std::string>& names);

/// Returns "a, b and c".
std::string join_names(const std::vector<std::string>& names);

/// Returns the end of an error message about an unknown name: ": did you mean X?", or "; known: a, b and c" if none is near.
std::string suggestion(std::string_view wanted, const std::vector<std::string>& names);

/// Returns whether a range has an element that equals `value`, as C++23's std::ranges::contains.
template <std::ranges::input_range Range, class Value>
  requires std::equality_comparable_with<std::ranges::range_reference_t<Range>, const Value&>
bool contains(Range&& range, const Value& value) {
  return std::ranges::find(range, value) != std::ranges::end(range);
}

std::vector<std::string> split(std::string_view text, char separator);
/// Splits a text into lines, without their line ends (LF or CRLF). A line end at the end of the text does not add an empty line.
std::vector<std::string> split_lines(std::string_view text);
std::string_view strip(std::string_view text);

/// True if the bytes are well-formed UTF-8 (no surrogates, no overlong forms).
bool is_utf8(std::string_view text);

/// Replaces each maximal invalid sequence of bytes by U+FFFD, like Python's errors="replace".
std::string repair_utf8(std::string_view text);

/// Formats 1234567 as "1,234,567".
std::string with_thousands(long long value);

/// Formats a number with `digits` digits after the point.
std::string fixed(double value, int digits);

/// Formats bytes as "12.3 MiB".
std::string format_bytes(double bytes);

/// Formats seconds as "1h 02m 03s", "2m 03s" or "3.1s".
std::string format_duration(double seconds);

}  // namespace tessera
