#include "src/data/tokenizers/json/characters.h"

namespace tessera::json_tokenizer {
namespace {

#include "src/data/tokenizers/tables/bert_classes.inc"
#include "src/data/tokenizers/tables/tokenizer_json.inc"

constexpr std::string_view white_space_runs = "9-D 20 85 A0 1680 2000-200A 2028-2029 202F 205F 3000";

const unicode::PageTable<std::uint16_t>& classes() {
  static const unicode::PageTable<std::uint16_t> table = [] {
    unicode::PageTable<std::uint16_t> out;
    const auto add = [&](std::string_view runs, std::uint16_t bit) {
      for (const unicode::Run& run : unicode::parse_runs(runs))
        for (char32_t code = run.first; code <= run.last; code += run.stride) out.at(code) = static_cast<std::uint16_t>(out.at(code) | bit);
    };
    add(json_letter, letter);
    add(json_number, number);
    add(white_space_runs, white_space);
    add(json_numeric, numeric);
    add(json_word, word);
    add(bert_punctuation, punctuation);
    add(json_combining, combining);
    add(json_joins, joins);
    add(bert_removed, control);
    add(bert_mark, mark);
    return out;
  }();
  return table;
}

}  // namespace

// The array is computed at compile time, so that its use does not depend on the order of static initialization.
constinit const std::array<std::uint16_t, 128> ascii_classes = [] {
  std::array<std::uint16_t, 128> out{};
  for (unsigned c = 0; c < 128; ++c) {
    const bool is_letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'), is_digit = c >= '0' && c <= '9';
    const bool is_space = (c >= 9 && c <= 13) || c == ' ';
    unsigned bits = 0;
    if (is_letter) bits |= letter | word;
    if (is_digit) bits |= number | numeric | word;
    if (c == '_') bits |= word;
    if (is_space) bits |= white_space;
    if (c > ' ' && c < 127 && !is_letter && !is_digit) bits |= punctuation;
    if ((c < ' ' && c != '\t' && c != '\n' && c != '\r') || c == 127) bits |= control;
    out[c] = static_cast<std::uint16_t>(bits);
  }
  return out;
}();

std::uint16_t class_of_wide(char32_t code) {
  static const unicode::PageTable<std::uint16_t>& table = classes();
  return table[code];
}

char32_t lower_of(char32_t code) {
  static const unicode::LowerTable table(bert_lower);
  return table[code];
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
