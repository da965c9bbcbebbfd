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

/// Decodes UTF-8 to code points; each maximal invalid part becomes U+FFFD.
std::u32string decode(std::string_view text);

void append_utf8(std::string& out, char32_t code);
std::string encode(std::u32string_view text);

/// Returns whether every byte is below 0x80.
bool is_ascii(std::string_view text);

}  // namespace tessera::unicode
