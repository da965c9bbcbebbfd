#include "src/data/tokenizers/json/characters.h"

#include <cstring>

namespace tessera::json_tokenizer {
namespace {

#include "src/data/tokenizers/tables/classes.inc"

}  // namespace

// The array is computed at compile time, so that its use does not depend on the order of static initialization.
constinit const std::array<std::uint16_t, 128> ascii_classes = [] {
  std::array<std::uint16_t, 128> out{};
  for (unsigned c = 0; c < 128; ++c) {
    const bool is_letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'), is_digit = c >= '0' && c <= '9';
    const bool is_space = (c >= 9 && c <= 13) || c == ' ';
    unsigned bits = 0;
    if (is_letter) bits |= letter | word | cased;
    if (is_digit) bits |= number | numeric | word | decimal;
    if (c == '\'' || c == '.' || c == ':' || c == '^' || c == '`') bits |= ignorable;
    if (c == '_') bits |= word;
    if (is_space) bits |= white_space;
    if (c > ' ' && c < 127 && !is_letter && !is_digit) bits |= punctuation;
    if ((c < ' ' && c != '\t' && c != '\n' && c != '\r') || c == 127) bits |= control;
    out[c] = static_cast<std::uint16_t>(bits);
  }
  return out;
}();

std::uint16_t class_of_wide(char32_t code) {
  static const unicode::PageTable<std::uint16_t> table(class_runs);
  return table[code];
}

char32_t lower_of(char32_t code) {
  static const unicode::PageTable<std::int32_t> distances(lower_distances);
  return code + static_cast<char32_t>(distances[code]);
}

namespace {

// Lower-cases the ASCII letters among eight characters.
std::uint64_t lower_eight(std::uint64_t eight) {
  constexpr std::uint64_t ones = 0x0101'0101'0101'0101U, tops = 0x80 * ones;
  const std::uint64_t low = eight & ~tops;
  const std::uint64_t from_a = low + ones * (0x80 - 'A'), beyond_z = low + ones * (0x80 - 'Z' - 1);  // their top bits tell which
  return eight | (from_a & ~beyond_z & ~eight & tops) >> 2;
}

}  // namespace

void lower_ascii(std::string& text) {
  std::size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    std::uint64_t eight;
    std::memcpy(&eight, text.data() + at, 8);
    eight = lower_eight(eight);
    std::memcpy(text.data() + at, &eight, 8);
  }
  for (; at < text.size(); ++at) text[at] = static_cast<char>(lower_eight(static_cast<std::uint8_t>(text[at])));
}

namespace {

struct ByteCharacters {
  std::array<char32_t, 256> of_byte{};
  std::array<std::int16_t, 512> of_character{};
  ByteCharacters() {
    of_character.fill(-1);
    char32_t next = 256;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      of_byte[byte] = printable ? static_cast<char32_t>(byte) : next++;
      of_character[of_byte[byte]] = static_cast<std::int16_t>(byte);
    }
  }
};

const ByteCharacters& byte_characters() {
  static const ByteCharacters table;
  return table;
}

}  // namespace

char32_t character_of_byte(std::uint8_t byte) {
  return byte_characters().of_byte[byte];
}

int byte_of_character(char32_t code) {
  return code < 512 ? byte_characters().of_character[code] : -1;
}

std::optional<std::string> bytes_of_characters(std::string_view token) {
  std::string out;
  for (std::size_t at = 0; at < token.size();) {
    const int byte = byte_of_character(next_code(token, at));
    if (byte < 0) return std::nullopt;
    out += static_cast<char>(byte);
  }
  return out;
}

void append_byte_characters(std::string_view bytes, std::string& out) {
  const ByteCharacters& table = byte_characters();
  for (const char byte : bytes) unicode::append_utf8(out, table.of_byte[static_cast<std::uint8_t>(byte)]);
}

}  // namespace tessera::json_tokenizer
