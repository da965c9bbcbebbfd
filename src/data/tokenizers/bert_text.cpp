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

}  // namespace

std::vector<std::u32string> words(std::u32string_view text, bool lower_case) {
  std::u32string clean = remove_controls_and_set_off_cjk(text);
  if (lower_case) clean = remove_accents_and_lower(clean);
  std::vector<std::u32string> out;
  bool inside = false;
  for (const char32_t code : clean) {
    if (code == U' ') {
      inside = false;
      continue;
    }
    const bool alone = is(code, punctuation);
    if (alone || !inside) out.emplace_back();
    out.back() += code;
    inside = !alone;
  }
  return out;
}

}  // namespace tessera::bert_text
