#pragma once

#include <array>
#include <charconv>
#include <span>
#include <string>

namespace tessera {

/// Appends the shortest decimal from which the same float32 is read back. (nlohmann::json would write a double with up to 17 digits.)
inline void append_number(std::string& out, float value) {
  std::array<char, 32> buffer;
  out.append(buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr);
}

/// Appends a JSON list of such numbers.
inline void append_numbers(std::string& out, std::span<const float> values) {
  out += '[';
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ',';
    append_number(out, values[i]);
  }
  out += ']';
}

}  // namespace tessera
