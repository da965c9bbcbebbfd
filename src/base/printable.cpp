#include <array>
#include <cstdint>
#include <cstdio>

#include "src/base/printable.h"
#include <tessera/base/text.h>

namespace tessera {
namespace {

std::string escaped(char c) {
  switch (c) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      break;
  }
  std::array<char, 8> out{};
  std::snprintf(out.data(), out.size(), "\\u%04x", static_cast<unsigned>(static_cast<std::uint8_t>(c)));
  return out.data();
}

}  // namespace

std::string printable(std::string_view text, std::size_t longest) {
  const bool cut = text.size() > longest;
  if (cut) {
    std::size_t end = longest > 3 ? longest - 3 : 0;
    while (end > 0 && (static_cast<std::uint8_t>(text[end]) & 0xC0) == 0x80) --end;  // does not cut inside a character
    text = text.substr(0, end);
  }
  std::string out;
  for (const char c : repair_utf8(text)) {
    if (static_cast<std::uint8_t>(c) < 0x20 || c == 0x7F)
      out += escaped(c);
    else
      out += c;
  }
  return cut ? out + "..." : out;
}

}  // namespace tessera
