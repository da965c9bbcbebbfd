#include "src/data/tokenizers/clip_text.h"

#include <algorithm>
#include <array>

#include "src/data/tokenizers/html.h"
#include "src/data/tokenizers/unicode.h"

namespace tessera::clip_text {
namespace {

#include "src/data/tokenizers/tables/clip_classes.inc"

enum SigmaClass : std::uint8_t { cased = 16, ignorable = 32 };

const unicode::ClassTable& classes() {
  // No part of CLIP's pattern matches U+0345, because the Python package `regex` treats it as a letter when it tests a negated set, but not
  // when it tests \p{L}.
  static const unicode::ClassTable table = {{clip_letter, letter},
                                            {clip_number, number},
                                            {clip_space, space},
                                            {clip_sigma_cased, cased},
                                            {clip_sigma_ignorable, ignorable},
                                            {"345", unmatched}};
  return table;
}

}  // namespace

void collapse_space(std::u32string& text) {
  const unicode::ClassTable& table = classes();
  std::size_t size = 0;
  bool pending = false;
  for (const char32_t code : text) {
    if ((table[code] & space) != 0) {
      pending = size > 0;
      continue;
    }
    if (pending) text[size++] = U' ';
    pending = false;
    text[size++] = code;
  }
  text.resize(size);
}

namespace {

// Returns the lower case of a capital sigma: U+03C2 at the end of a word (Unicode Standard, section 3.13, Final_Sigma), otherwise U+03C3.
char32_t lower_sigma(std::u32string_view text, std::size_t at) {
  const auto is = [&](std::size_t k, SigmaClass wanted) { return (classes()[text[k]] & wanted) != 0; };
  std::size_t before = at;
  while (before > 0 && is(before - 1, ignorable)) --before;
  std::size_t after = at + 1;
  while (after < text.size() && is(after, ignorable)) ++after;
  const bool is_final = before > 0 && is(before - 1, cased) && !(after < text.size() && is(after, cased));
  return is_final ? 0x3C2 : 0x3C3;
}

// Converts to lower case, including two special characters: capital sigma, whose lower case depends on its neighbors, and
// U+0130, which becomes two characters.
std::u32string lower_with_context(std::u32string_view text, const unicode::LowerTable& lower) {
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

}  // namespace

void lower_case(std::u32string& text) {
  static const unicode::LowerTable lower(clip_lower);
  if (std::any_of(text.begin(), text.end(), [](char32_t code) { return code == 0x130 || code == 0x3A3; })) {
    text = lower_with_context(text, lower);
    return;
  }
  for (char32_t& code : text) code = lower[code];
}

namespace {

constexpr std::array<std::uint8_t, 128> ascii_classes = [] {
  std::array<std::uint8_t, 128> out{};
  for (char c = 'a'; c <= 'z'; ++c) out[static_cast<std::size_t>(c)] = out[static_cast<std::size_t>(c - 0x20)] = letter;
  for (char c = '0'; c <= '9'; ++c) out[static_cast<std::size_t>(c)] = number;
  for (const char c : {' ', '\t', '\n', '\v', '\f', '\r', '\x1C', '\x1D', '\x1E', '\x1F'})
    out[static_cast<std::size_t>(c)] = space;
  return out;
}();

// Compares a lower-cased character with an ASCII literal of the pattern. The pattern also treats U+017F as an s.
bool equal(char32_t code, char literal) {
  return (code == 0x17F ? U's' : code) == static_cast<char32_t>(literal);
}
bool equal(char c, char literal) {
  return c == literal;
}

template <class View>
bool matches(View text, std::size_t at, std::string_view literal) {
  if (text.size() - at < literal.size()) return false;
  for (std::size_t i = 0; i < literal.size(); ++i)
    if (!equal(text[at + i], literal[i])) return false;
  return true;
}

template <class View>
std::size_t end_of_piece(View text, std::size_t begin) {
  if (text[begin] == '<')
    for (const std::string_view literal : {"<start_of_text>", "<end_of_text>"})
      if (matches(text, begin, literal)) return begin + literal.size();
  if (text[begin] == '\'')
    for (const std::string_view literal : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
      if (matches(text, begin, literal)) return begin + literal.size();
  constexpr std::uint8_t classes_of_pattern = letter | number | space | unmatched;
  const std::uint8_t first = class_of(text[begin]) & classes_of_pattern;
  std::size_t end = begin + 1;
  if (first != number)
    while (end < text.size() && (class_of(text[end]) & classes_of_pattern) == first) ++end;
  return end;
}

}  // namespace

std::uint8_t class_of(char32_t code) {
  return code < 0x80 ? ascii_classes[code] : classes()[code];
}

std::uint8_t class_of(char ascii) {
  return ascii_classes[static_cast<std::size_t>(ascii)];
}

std::u32string repaired(std::string_view text, Cleanup level) {
  std::u32string codes = unicode::decode(text);
  if (level != Cleanup::none) codes = fix_text(codes, level);
  if (codes.find(U'&') != std::u32string::npos) codes = html::unescape(html::unescape(codes));
  collapse_space(codes);
  return codes;
}

std::u32string clean(std::string_view text, Cleanup level) {
  std::u32string codes = repaired(text, level);
  lower_case(codes);
  return codes;
}

bool is_plain(std::string_view text) {
  bool plain = true;
  for (const char c : text) {  // no early exit, so that the loop is vectorized
    const auto byte = static_cast<std::uint8_t>(c);
    plain &= (byte >= 0x20 || byte == '\t' || byte == '\n') & (byte < 0x7F) & (byte != '&');
  }
  return plain;
}

std::size_t piece_end(std::u32string_view text, std::size_t begin) {
  return end_of_piece(text, begin);
}

std::size_t piece_end(std::string_view text, std::size_t begin) {
  return end_of_piece(text, begin);
}

}  // namespace tessera::clip_text
