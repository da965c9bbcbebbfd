#include "src/data/tokenizers/bert_text.h"

#include <algorithm>

#include "src/data/tokenizers/normalization.h"
#include "src/data/tokenizers/unicode.h"

namespace tessera::bert_text {
namespace {

using unicode::Range;
using unicode::Shift;

#include "src/data/tokenizers/tables/bert_classes.inc"

enum Class : std::uint8_t { removed = 1, space = 2, cjk = 4, mark = 8, punctuation = 16 };

const unicode::ClassTable& classes() {
  static const unicode::ClassTable table = [] {
    unicode::ClassTable out;
    out.add(bert_removed, removed);
    out.add(bert_space, space);
    out.add(bert_cjk, cjk);
    out.add(bert_mark, mark);
    out.add(bert_punctuation, punctuation);
    return out;
  }();
  return table;
}

bool is(char32_t code, Class wanted) {
  return (classes()[code] & wanted) != 0;
}

std::u32string remove_controls_and_set_off_cjk(std::u32string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (const char32_t code : text) {
    if (is(code, removed)) continue;
    if (is(code, space)) {
      out += U' ';
    } else if (is(code, cjk)) {
      out += U' ';
      out += code;
      out += U' ';
    } else {
      out += code;
    }
  }
  return out;
}

std::u32string remove_accents_and_lower(std::u32string_view text) {
  static const unicode::LowerTable lower(bert_lower);
  std::u32string decomposed;
  if (std::any_of(text.begin(), text.end(), [](char32_t code) { return code >= 0x80; })) {
    decomposed = unicode::decompose(text, unicode::Version::hugging_face);
    text = decomposed;
  }
  std::u32string out;
  out.reserve(text.size());
  for (const char32_t code : text) {
    if (is(code, mark)) continue;
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
  std::u32string out = remove_controls_and_set_off_cjk(text);
  if (lower_case) out = remove_accents_and_lower(out);
  return out;
}

bool is_plain(std::string_view text) {
  bool plain = true;
  for (const char c : text) {  // to the end in any case: without an exit it is vectorised
    const auto byte = static_cast<std::uint8_t>(c);
    plain &= (byte >= 0x20 || byte == '\t' || byte == '\n' || byte == '\r') & (byte < 0x7F);
  }
  return plain;
}

std::size_t word_end(std::u32string_view text, std::size_t begin) {
  std::size_t end = begin;
  while (end < text.size() && text[end] != U' ' && !is(text[end], punctuation)) ++end;
  return std::max(end, begin + 1);
}

std::size_t word_end(std::string_view text, std::size_t begin) {
  std::size_t end = begin;
  while (end < text.size() && text[end] > ' ' && !is_ascii_punctuation(text[end])) ++end;
  return std::max(end, begin + 1);
}

}  // namespace tessera::bert_text
