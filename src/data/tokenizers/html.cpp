#include "src/data/tokenizers/html.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include <unicode/locid.h>
#include <unicode/unistr.h>

#include "src/data/tokenizers/fix_encoding.h"
#include "src/data/tokenizers/unicode.h"
#include <tessera/base/text.h>

namespace tessera::html {
namespace {

#include "src/data/tokenizers/tables/html_entities.inc"

using Names = std::map<std::string, std::u32string, std::less<>>;

const Names& html5() {
  static const Names names = [] {
    Names out;
    for (const std::string& item : split(entities, ' ')) {  // name=characters
      const std::size_t equals = item.find('=');
      out.emplace(item.substr(0, equals) + ";", unicode::decode(std::string_view(item).substr(equals + 1)));
    }
    for (const std::string& name : split(without_semicolon, ' ')) out.emplace(name, out.at(name + ";"));
    return out;
  }();
  return names;
}

// Returns whether a character is ASCII and of a kind: std::isdigit, std::isxdigit or std::isalnum.
bool is(char32_t code, int (*kind)(int)) {
  return code < 0x80 && kind(static_cast<int>(code)) != 0;
}

// Returns the value of a numeric reference (HTML5, 12.2.5.80); empty for most controls and for noncharacters.
std::u32string numeric_value(char32_t number) {
  if (number == 0 || (number >= 0xD800 && number <= 0xDFFF) || number > 0x10FFFF) return U"\uFFFD";
  if (number >= 0x80 && number <= 0x9F) return {mojibake::windows_1252(number)};
  const bool control =
      (number < 0x20 && number != '\t' && number != '\n' && number != '\f' && number != '\r') || number == 0x7F;
  const bool noncharacter = (number & 0xFFFE) == 0xFFFE || (number >= 0xFDD0 && number <= 0xFDEF);
  return control || noncharacter ? std::u32string() : std::u32string(1, number);
}

struct Reference {
  std::u32string value;
  std::size_t end;  // index after the reference
};

// Reads a numeric reference whose `#` is at `i`; the `;` is optional.
std::optional<Reference> numeric_reference(std::u32string_view text, std::size_t i) {
  std::size_t k = i + 1;
  const bool hex = k < text.size() && (text[k] == U'x' || text[k] == U'X');
  if (hex) ++k;
  const std::size_t digits = k;
  char32_t number = 0;
  for (; k < text.size() && (hex ? is(text[k], std::isxdigit) : is(text[k], std::isdigit)); ++k) {
    const char32_t c = text[k];
    const char32_t digit = is(c, std::isdigit) ? c - U'0' : (c | 0x20) - U'a' + 10;
    number = std::min<char32_t>(number * (hex ? 16 : 10) + digit, 0x110000);
  }
  if (k == digits) return std::nullopt;
  if (k < text.size() && text[k] == U';') ++k;
  return Reference{numeric_value(number), k};
}

// Reads a named reference that starts at `i`, after the `&`.
std::optional<Reference> named_reference(std::u32string_view text, std::size_t i) {
  constexpr std::size_t longest = 32;
  constexpr std::u32string_view stop = U"\t\n\f <&#;";
  std::size_t end = i;
  while (end < text.size() && end - i < longest && stop.find(text[end]) == std::u32string_view::npos) ++end;
  if (end == i) return std::nullopt;
  if (end < text.size() && text[end] == U';') ++end;
  std::string name;  // up to the first non-ASCII character, because all names are ASCII
  for (std::size_t k = i; k < end && text[k] < 0x80; ++k) name += static_cast<char>(text[k]);
  for (std::size_t size = name.size(); size > 1; --size) {
    const auto found = html5().find(std::string_view(name).substr(0, size));
    if (found == html5().end()) continue;
    return Reference{std::u32string(found->second) + std::u32string(text.substr(i + size, end - i - size)), end};
  }
  return Reference{U"&" + std::u32string(text.substr(i, end - i)), end};
}

std::u32string upper_case(const std::u32string& text) {
  std::string out;
  icu::UnicodeString::fromUTF8(unicode::encode(text)).toUpper(icu::Locale::getRoot()).toUTF8String(out);
  return unicode::decode(out);
}

// Returns the upper-case names that ftfy adds, except those that HTML5 recognizes anyway. They stand for the upper-case letters.
const Names& upper_forms() {
  static const Names names = [] {
    Names out;
    for (const auto& [name, value] : html5()) {
      if (!name.ends_with(';') || std::any_of(name.begin(), name.end(), [](char c) { return c >= 'A' && c <= 'Z'; })) continue;
      std::u32string upper(name.begin(), name.end());
      for (char32_t& c : upper) c -= c >= U'a' && c <= U'z' ? 0x20 : 0;
      if (named_reference(upper, 0)->value == U"&" + upper) out.emplace(std::string(upper.begin(), upper.end()), upper_case(value));
    }
    return out;
  }();
  return names;
}

// Reads a reference that starts at `i`, after the `&`, by ftfy's rules.
std::optional<Reference> strict_reference(std::u32string_view text, std::size_t i) {
  constexpr std::size_t longest = 24;
  const bool number = i < text.size() && text[i] == U'#';
  const std::size_t begin = number ? i + 1 : i;
  std::size_t end = begin;
  while (end < text.size() && end - begin < longest && is(text[end], std::isalnum)) ++end;
  if (end == begin || end >= text.size() || text[end] != U';') return std::nullopt;
  ++end;
  if (number) {
    std::optional<Reference> reference = numeric_reference(text, i);
    if (!reference || reference->end != end || reference->value == U";") return std::nullopt;
    return reference;
  }
  const std::u32string_view reference_text = text.substr(i, end - i);
  const std::string name(reference_text.begin(), reference_text.end());
  for (const Names* names : {&html5(), &upper_forms()})
    if (const auto found = names->find(name); found != names->end()) return Reference{found->second, end};
  return std::nullopt;
}

// For each `&`, calls find(i), where `i` is the position after the `&`. If find() returns a reference, replaces this reference in the text
// by its value.
template <class Find>
std::u32string replace_references(std::u32string_view text, Find&& find) {
  std::u32string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const std::optional<Reference> reference = text[i] == U'&' ? find(i + 1) : std::nullopt;
    if (reference)
      out += reference->value;
    else
      out += text[i];
    i = reference ? reference->end : i + 1;
  }
  return out;
}

}  // namespace

std::u32string unescape(std::u32string_view text) {
  return replace_references(text, [&](std::size_t i) -> std::optional<Reference> {
    if (i == text.size()) return std::nullopt;
    return text[i] == U'#' ? numeric_reference(text, i) : named_reference(text, i);
  });
}

std::u32string unescape_strict(std::u32string_view text) {
  return replace_references(text, [&](std::size_t i) {
    std::optional<Reference> reference = strict_reference(text, i);
    // ftfy would make one pass for each level of `&amp;amp;amp;`. This loop resolves the whole chain at once, because a long
    // chain would otherwise take quadratic time.
    while (reference && reference->value == U"&") {
      std::optional<Reference> next = strict_reference(text, reference->end);
      if (!next || next->value != U"&") break;
      reference = next;
    }
    return reference;
  });
}

}  // namespace tessera::html
