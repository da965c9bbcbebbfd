#include "src/data/tokenizers/json/base64.h"

#include <array>
#include <cstdint>

namespace tessera::json_tokenizer {
namespace {

constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<std::int8_t, 256> digits = [] {
  std::array<std::int8_t, 256> out{};
  out.fill(-1);
  for (std::size_t i = 0; i < alphabet.size(); ++i) out[static_cast<std::uint8_t>(alphabet[i])] = static_cast<std::int8_t>(i);
  return out;
}();

}  // namespace

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  std::string out;
  out.reserve(text.size() * 3 / 4);
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const std::int8_t digit = digits[static_cast<std::uint8_t>(c)];
    if (digit < 0) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 0xFF);
  }
  return out;
}

std::string to_base64(std::string_view bytes) {
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) bits = bits << 8 | (i + k < bytes.size() ? static_cast<std::uint8_t>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k) out += i + k <= bytes.size() ? alphabet[bits >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

}  // namespace tessera::json_tokenizer
