#include "src/data/tokenizers/json/graphemes.h"

#include <unicode/uchar.h>

#include "src/data/tokenizers/json/characters.h"

namespace tessera::json_tokenizer {
namespace {

constexpr char32_t zero_width_joiner = 0x200D;

int property_of(char32_t code) {
  return u_getIntPropertyValue(static_cast<UChar32>(code), UCHAR_GRAPHEME_CLUSTER_BREAK);
}

bool is_control(int property) {
  return property == U_GCB_CONTROL || property == U_GCB_CR || property == U_GCB_LF;
}

bool is_pictograph(char32_t code) {
  return u_hasBinaryProperty(static_cast<UChar32>(code), UCHAR_EXTENDED_PICTOGRAPHIC) != 0;
}

bool joins_after(int before, int after) {
  const bool syllable = after == U_GCB_LV || after == U_GCB_LVT;
  switch (before) {
    case U_GCB_PREPEND: return !is_control(after);
    case U_GCB_L: return after == U_GCB_L || after == U_GCB_V || syllable;
    case U_GCB_LV:
    case U_GCB_V: return after == U_GCB_V || after == U_GCB_T;
    case U_GCB_LVT:
    case U_GCB_T: return after == U_GCB_T;
    default: return false;
  }
}

}  // namespace

std::size_t end_of_grapheme(std::string_view text, std::size_t at) {
  std::size_t end = at;
  char32_t last = next_code(text, end);
  if (end == text.size()) return end;
  if (last < 0x80 && static_cast<std::uint8_t>(text[end]) < 0x80) return end + (last == '\r' && text[end] == '\n' ? 1 : 0);
  int before = property_of(last);
  if (is_control(before)) return end;
  bool pictograph = is_pictograph(last), joined = false;  // joined: whether the last character is a joiner that follows a pictograph
  while (end < text.size()) {
    std::size_t next = end;
    const char32_t code = next_code(text, next);
    const int after = property_of(code);
    if ((class_of(code) & joins) != 0) {
      joined = pictograph && code == zero_width_joiner;
      before = U_GCB_OTHER;
    } else if (joined && is_pictograph(code)) {
      joined = false;
    } else if (joins_after(before, after)) {
      before = after;
      pictograph = is_pictograph(code);
    } else {
      break;
    }
    end = next;
  }
  return end;
}

}  // namespace tessera::json_tokenizer
