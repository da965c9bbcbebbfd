#include "src/data/tokenizers/bert_text.h"

#include <algorithm>

#include "src/data/tokenizers/normalization.h"
#include "src/data/tokenizers/unicode.h"

namespace tessera::bert_text {
namespace {

#include "src/data/tokenizers/tables/bert_classes.inc"

enum Class : std::uint8_t { removed = 1, space = 2, cjk = 4, mark = 8, punctuation = 16 };

const unicode::ClassTable& classes() {
  static const unicode::ClassTable table = {{bert_removed, removed},
                                            {bert_space, space},
                                            {bert_cjk, cjk},
                                            {bert_mark, mark},
                                            {bert_punctuation, punctuation}};
  return table;
}

// Removes controls, turns white space into spaces, and puts spaces around CJK characters.
std::u32string set_apart(std::u32string_view text) {
  const unicode::ClassTable& table = classes();
  std::u32string out;
  out.reserve(text.size() + 8);
  for (const char32_t code : text) {
    const std::uint8_t here = table[code];
    if ((here & (removed | space | cjk)) == 0) {
      out += code;
    } else if ((here & removed) != 0) {
      continue;
    } else if ((here & space) != 0) {
      out += U' ';
    } else {
      out += U' ';
      out += code;
      out += U' ';
    }
  }
  return out;
}

std::u32string remove_accents_and_lower(std::u32string_view text) {
  static const unicode::LowerTable lower(bert_lower);
  const unicode::ClassTable& table = classes();
  const std::u32string decomposed = unicode::decompose(text, unicode::Version::hugging_face);
  std::u32string out;
  out.reserve(decomposed.size());
  for (const char32_t code : decomposed) {
    if ((table[code] & mark) != 0) continue;
    if (code == 0x130)
      out += U"i\u0307";
    else
      out += lower[code];
  }
  return out;
}

bool is_ascii_punctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

}  // namespace

std::u32string clean(std::u32string_view text, bool lower_case) {
  std::u32string out = set_apart(text);
  if (lower_case) out = remove_accents_and_lower(out);
  return out;
}

bool is_plain(std::string_view text) {
  bool plain = true;
  for (const char c : text) {  // no early exit, so that the loop is vectorized
    const auto byte = static_cast<std::uint8_t>(c);
    plain &= (byte >= 0x20 || byte == '\t' || byte == '\n' || byte == '\r') & (byte < 0x7F);
  }
  return plain;
}

std::size_t word_end(std::u32string_view text, std::size_t begin) {
  const unicode::ClassTable& table = classes();
  std::size_t end = begin;
  while (end < text.size() && text[end] != U' ' && (table[text[end]] & punctuation) == 0) ++end;
  return std::max(end, begin + 1);
}

std::size_t word_end(std::string_view text, std::size_t begin) {
  std::size_t end = begin;
  while (end < text.size() && text[end] > ' ' && !is_ascii_punctuation(text[end])) ++end;
  return std::max(end, begin + 1);
}

}  // namespace tessera::bert_text
