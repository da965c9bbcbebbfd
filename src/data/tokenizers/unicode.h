#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Converts between UTF-8 and code points, and defines tables over all of Unicode. The tables are frozen copies of the
/// reference tokenizers' tables, so that ids do not depend on the Unicode version of a library.
namespace tessera::unicode {

/// Assigns a value to every `stride`-th code point from first to last.
struct Run {
  char32_t first, last, stride;
  std::int32_t value;
};

/// Parses the runs of a table as written in the source code: "41-5A AA =3 100-12E/2". Code points are hexadecimal, and a stride
/// other than 1 follows a slash. "=N" sets the value of the runs after it; the value of the runs before the first "=N" is 1.
std::vector<Run> parse_runs(std::string_view table);

/// Replacements for consecutive code points: `text[i]` replaces the code point `first + i`.
struct Replaced {
  char32_t first;
  std::u32string_view text;
};

constexpr char32_t code_points = 0x110000;

/// A two-stage table with a value per code point. All pages that would hold only T{} are one shared page.
template <class T>
class PageTable {
 public:
  PageTable() : pages_(1) {}
  explicit PageTable(std::string_view runs) : PageTable() {
    for (const Run& run : parse_runs(runs))
      for (char32_t code = run.first; code <= run.last; code += run.stride) at(code) = static_cast<T>(run.value);
  }

  T operator[](char32_t code) const { return pages_[index_[code >> 8]][code & 0xFF]; }

  T& at(char32_t code) {
    std::uint16_t& page = index_[code >> 8];
    if (page == 0) {
      page = static_cast<std::uint16_t>(pages_.size());
      pages_.emplace_back();
    }
    return pages_[page][code & 0xFF];
  }

 private:
  std::array<std::uint16_t, (code_points >> 8)> index_{};
  std::vector<std::array<T, 256>> pages_;
};

/// Returns the length of the character that starts with the byte `first`, in valid UTF-8.
inline std::size_t length_of(char first) {
  const auto byte = static_cast<std::uint8_t>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// Returns the character at position `at` of valid UTF-8, and advances `at` past this character.
inline char32_t next_code(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<std::uint8_t>(text[at + i])); };
  const char32_t first = byte(0);
  if (first < 0x80) return ++at, first;
  if (first < 0xE0) {
    const char32_t code = (first & 0x1F) << 6 | (byte(1) & 0x3F);
    return at += 2, code;
  }
  if (first < 0xF0) {
    const char32_t code = (first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    return at += 3, code;
  }
  const char32_t code = (first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  return at += 4, code;
}

/// Decodes UTF-8 to code points; each maximal invalid part becomes U+FFFD.
std::u32string decode(std::string_view text);

void append_utf8(std::string& out, char32_t code);
std::string encode(std::u32string_view text);

/// Returns whether every byte is below 0x80.
bool is_ascii(std::string_view text);

}  // namespace tessera::unicode
