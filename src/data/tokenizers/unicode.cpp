#include "src/data/tokenizers/unicode.h"

#include <algorithm>

#include <tessera/base/text.h>

namespace tessera::unicode {
namespace {

// Well-formed UTF-8 only.
std::u32string decode_valid(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t k) { return static_cast<char32_t>(static_cast<std::uint8_t>(text[i + k])); };
    const char32_t first = byte(0);
    if (first < 0x80) {
      out += first;
      i += 1;
    } else if (first < 0xE0) {
      out += (first & 0x1F) << 6 | (byte(1) & 0x3F);
      i += 2;
    } else if (first < 0xF0) {
      out += (first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
      i += 3;
    } else {
      out += (first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
      i += 4;
    }
  }
  return out;
}

}  // namespace

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<std::uint8_t>(c) < 0x80; });
}

std::u32string decode(std::string_view text) {
  if (is_ascii(text)) return {text.begin(), text.end()};
  return is_utf8(text) ? decode_valid(text) : decode_valid(repair_utf8(text));
}

void append_utf8(std::string& out, char32_t code) {
  const auto push = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    push(code);
  } else if (code < 0x800) {
    push(0xC0 | code >> 6);
    push(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    push(0xE0 | code >> 12);
    push(0x80 | (code >> 6 & 0x3F));
    push(0x80 | (code & 0x3F));
  } else {
    push(0xF0 | code >> 18);
    push(0x80 | (code >> 12 & 0x3F));
    push(0x80 | (code >> 6 & 0x3F));
    push(0x80 | (code & 0x3F));
  }
}

std::string encode(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t code : text) append_utf8(out, code);
  return out;
}

}  // namespace tessera::unicode
