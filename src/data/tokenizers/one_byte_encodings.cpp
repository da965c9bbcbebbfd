#include "src/data/tokenizers/one_byte_encodings.h"

#include <array>
#include <vector>

#include "src/data/tokenizers/mojibake_tables.h"
#include "src/data/tokenizers/unicode.h"

namespace tessera::one_byte {
namespace {

constexpr std::uint16_t all_encodings = (1 << encoding_count) - 1;

constexpr std::uint16_t windows_encodings = [] {
  std::uint16_t bits = 0;
  for (int e = 0; e < encoding_count; ++e)
    if (is_windows(static_cast<Encoding>(e))) bits |= static_cast<std::uint16_t>(1 << e);
  return bits;
}();

// Maps characters that are not ASCII to their bytes in each encoding.
class Bytes {
 public:
  Bytes() : rows_(1) {
    for (std::size_t b = 0x80; b < 0x100; ++b) {
      set(static_cast<char32_t>(b), latin_1, b);
      for (int e = 1; e < encoding_count; ++e)
        set(mojibake::one_byte_page(static_cast<std::size_t>(e - 1))[b - 0x80], static_cast<Encoding>(e), b);
    }
    for (int e = 0; e < encoding_count; ++e)
      if (is_windows(static_cast<Encoding>(e)))
        set(0xFFFD, static_cast<Encoding>(e), static_cast<std::uint8_t>(lost_byte));
  }

  struct Row {
    std::uint16_t encodings = 0;
    std::array<std::uint8_t, encoding_count> bytes{};
  };
  const Row& operator[](char32_t code) const { return rows_[index_[code]]; }

 private:
  void set(char32_t code, Encoding encoding, std::size_t byte) {
    std::uint16_t& index = index_.at(code);
    if (index == 0) {
      index = static_cast<std::uint16_t>(rows_.size());
      rows_.emplace_back();
    }
    rows_[index].encodings |= static_cast<std::uint16_t>(1 << encoding);
    rows_[index].bytes[encoding] = static_cast<std::uint8_t>(byte);
  }

  unicode::PageTable<std::uint16_t> index_;
  std::vector<Row> rows_;
};

const Bytes& bytes() {
  static const Bytes table;
  return table;
}

}  // namespace

std::uint16_t encodings_of(std::u32string_view text) {
  std::uint16_t common = all_encodings;
  for (const char32_t code : text) {
    if (code >= 0x80)
      common &= bytes()[code].encodings;
    else if (code == static_cast<char32_t>(lost_byte))
      common &= static_cast<std::uint16_t>(~windows_encodings);
    if (common == 0) break;
  }
  return common;
}

std::string encode(std::u32string_view text, Encoding encoding) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t code : text)
    out += static_cast<char>(code < 0x80 ? static_cast<std::uint8_t>(code) : bytes()[code].bytes[encoding]);
  return out;
}

}  // namespace tessera::one_byte
