#include "src/data/tokenizers/clip_text.h"

#include "src/data/tokenizers/html.h"
#include "src/data/tokenizers/unicode.h"

namespace tessera::clip_text {
namespace {

using unicode::Range;
using unicode::Shift;

#include "src/data/tokenizers/tables/clip_classes.inc"

enum SigmaClass : std::uint8_t { cased = 16, ignorable = 32 };

const unicode::ClassTable& classes() {
  static const unicode::ClassTable table = [] {
    unicode::ClassTable out;
    out.add(clip_letter, letter);
    out.add(clip_number, number);
    out.add(clip_space, space);
    out.add(clip_sigma_cased, cased);
    out.add(clip_sigma_ignorable, ignorable);
    // `regex` folds U+0345 to a letter when it tests a negated set, but not when it tests \p{L}.
    constexpr Range iota[] = {{0x345, 0x345}};
    out.add(iota, unmatched);
    return out;
  }();
  return table;
}

std::u32string collapse_space(std::u32string_view text) {
  std::u32string out;
  out.reserve(text.size());
  bool pending = false;
  for (const char32_t code : text) {
    if ((classes()[code] & space) != 0) {
      pending = !out.empty();
      continue;
    }
    if (pending) out += U' ';
    pending = false;
    out += code;
  }
  return out;
}

// Capital sigma at the end of a word is U+03C2 (Unicode 3.13, Final_Sigma).
char32_t lower_sigma(std::u32string_view text, std::size_t at) {
  const auto is = [&](std::size_t k, SigmaClass wanted) { return (classes()[text[k]] & wanted) != 0; };
  std::size_t before = at;
  while (before > 0 && is(before - 1, ignorable)) --before;
  std::size_t after = at + 1;
  while (after < text.size() && is(after, ignorable)) ++after;
  const bool is_final = before > 0 && is(before - 1, cased) && !(after < text.size() && is(after, cased));
  return is_final ? 0x3C2 : 0x3C3;
}

std::u32string lower_case(std::u32string_view text) {
  static const unicode::LowerTable lower(clip_lower);
  std::u32string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == 0x130)
      out += U"i\u0307";
    else if (text[i] == 0x3A3)
      out += lower_sigma(text, i);
    else
      out += lower[text[i]];
  }
  return out;
}

// Characters that no step but white space and lower case changes.
bool is_plain(std::string_view text) {
  for (const char c : text)
    if (static_cast<std::uint8_t>(c) >= 0x7F || c == '&' || (c < 0x20 && c != '\t' && c != '\n')) return false;
  return true;
}

// A character of the pattern's ASCII literals, case ignored; U+017F is a small s to it.
bool matches(std::u32string_view text, std::size_t at, std::u32string_view literal) {
  if (text.size() - at < literal.size()) return false;
  for (std::size_t i = 0; i < literal.size(); ++i) {
    const char32_t code = text[at + i] == 0x17F ? U's' : text[at + i];
    if (code != literal[i]) return false;
  }
  return true;
}

}  // namespace

std::uint8_t class_of(char32_t code) {
  return classes()[code];
}

std::u32string clean(std::string_view text, Cleanup level) {
  std::u32string codes = unicode::decode(text);
  if (!is_plain(text)) codes = html::unescape(html::unescape(fix_text(codes, level)));
  return lower_case(collapse_space(codes));
}

std::size_t piece_end(std::u32string_view text, std::size_t begin) {
  if (text[begin] == U'<')
    for (const std::u32string_view literal : {U"<start_of_text>", U"<end_of_text>"})
      if (matches(text, begin, literal)) return begin + literal.size();
  if (text[begin] == U'\'')
    for (const std::u32string_view literal : {U"'s", U"'t", U"'re", U"'ve", U"'m", U"'ll", U"'d"})
      if (matches(text, begin, literal)) return begin + literal.size();
  const std::uint8_t first = class_of(text[begin]) & (letter | number | space | unmatched);
  std::size_t end = begin + 1;
  if (first != number)
    while (end < text.size() && (class_of(text[end]) & (letter | number | space | unmatched)) == first) ++end;
  return end;
}

}  // namespace tessera::clip_text
