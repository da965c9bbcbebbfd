#include "src/data/tokenizers/unicode.h"

#include <charconv>
#include <cstring>

#include <tessera/base/text.h>

namespace tessera::unicode {
namespace {

template <class T>
T take_number(std::string_view& text, int base) {
  T number{};
  const char* end = std::from_chars(text.data(), text.data() + text.size(), number, base).ptr;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

bool take(std::string_view& text, char wanted) {
  const bool found = text.starts_with(wanted);
  if (found) text.remove_prefix(1);
  return found;
}

}  // namespace

std::vector<Run> parse_runs(std::string_view table) {
  std::vector<Run> out;
  std::int32_t value = 1;
  for (; !table.empty(); take(table, ' ')) {
    if (take(table, '=')) {
      value = take_number<std::int32_t>(table, 10);
      continue;
    }
    const char32_t first = take_number<std::uint32_t>(table, 16);
    const char32_t last = take(table, '-') ? take_number<std::uint32_t>(table, 16) : first;
    out.push_back({first, last, take(table, '/') ? take_number<std::uint32_t>(table, 10) : 1, value});
  }
  return out;
}

bool is_ascii(std::string_view text) {
  const char* at = text.data();
  std::size_t left = text.size();
  std::uint64_t bits = 0;
  for (; left >= 8; at += 8, left -= 8) {
    std::uint64_t eight;
    std::memcpy(&eight, at, 8);
    bits |= eight;
  }
  for (; left > 0; ++at, --left) bits |= static_cast<std::uint8_t>(*at);
  return (bits & 0x8080'8080'8080'8080U) == 0;
}

std::u32string decode(std::string_view text) {
  if (!is_utf8(text)) return decode(repair_utf8(text));
  std::u32string out(text.size(), U'\0');
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size();) out[count++] = next_code(text, at);
  out.resize(count);
  return out;
}

void append_utf8(std::string& out, char32_t code) {
  const auto lead = [](char32_t bits) { return static_cast<char>(bits); };
  const auto trail = [code](unsigned shift) { return static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) {
    out += lead(code);
  } else if (code < 0x800) {
    const char bytes[] = {lead(0xC0 | code >> 6), trail(0)};
    out.append(bytes, 2);
  } else if (code < 0x10000) {
    const char bytes[] = {lead(0xE0 | code >> 12), trail(6), trail(0)};
    out.append(bytes, 3);
  } else {
    const char bytes[] = {lead(0xF0 | code >> 18), trail(12), trail(6), trail(0)};
    out.append(bytes, 4);
  }
}

std::string encode(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t code : text) append_utf8(out, code);
  return out;
}

}  // namespace tessera::unicode
