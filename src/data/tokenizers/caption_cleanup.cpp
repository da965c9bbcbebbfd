#include "src/data/tokenizers/caption_cleanup.h"

#include <algorithm>
#include <array>

#include "src/data/tokenizers/html.h"
#include "src/data/tokenizers/json/characters.h"
#include "src/data/tokenizers/unicode.h"

namespace tessera {
namespace {

using json_tokenizer::class_of;

bool is_ascii_punctuation(char32_t code) {
  return code < 0x80 && (class_of(code) & json_tokenizer::punctuation) != 0;
}

// As Python's str.isspace, which has four control characters more than \s.
bool is_python_space(char32_t code) {
  return (class_of(code) & json_tokenizer::white_space) != 0 || (code >= 0x1C && code <= 0x1F);
}

// Replaces each run of white space by a space, and strips white space at both ends.
void collapse_space(std::u32string& text) {
  std::size_t size = 0;
  bool pending = false;
  for (const char32_t code : text) {
    if (is_python_space(code)) {
      pending = size > 0;
      continue;
    }
    if (pending) text[size++] = U' ';
    pending = false;
    text[size++] = code;
  }
  text.resize(size);
}

// Returns the lower case of a capital sigma: U+03C2 at the end of a word (Unicode Standard, section 3.13, Final_Sigma), otherwise U+03C3.
char32_t lower_sigma(std::u32string_view text, std::size_t at) {
  const auto is = [&](std::size_t k, json_tokenizer::Class wanted) { return (class_of(text[k]) & wanted) != 0; };
  std::size_t before = at;
  while (before > 0 && is(before - 1, json_tokenizer::ignorable)) --before;
  std::size_t after = at + 1;
  while (after < text.size() && is(after, json_tokenizer::ignorable)) ++after;
  const bool is_final = before > 0 && is(before - 1, json_tokenizer::cased) && !(after < text.size() && is(after, json_tokenizer::cased));
  return is_final ? 0x3C2 : 0x3C3;
}

char32_t python_lower(char32_t code) {
  return (class_of(code) & json_tokenizer::newer_capital) != 0 ? code : json_tokenizer::lower_of(code);
}

// Converts to lower case as Python's str.lower does. The lower case of a capital sigma depends on its neighbors, and that of U+0130 has two
// characters.
void lower_case(std::u32string& text) {
  if (std::none_of(text.begin(), text.end(), [](char32_t code) { return code == json_tokenizer::capital_dotted_i || code == 0x3A3; })) {
    for (char32_t& code : text) code = python_lower(code);
    return;
  }
  std::u32string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == json_tokenizer::capital_dotted_i)
      out += U"i\u0307";
    else
      out += text[i] == 0x3A3 ? lower_sigma(text, i) : python_lower(text[i]);
  }
  text = std::move(out);
}

// Applies the repairs of a level, then html.unescape twice, then collapses white space.
std::u32string repaired_caption(std::string_view text, Cleanup level) {
  std::u32string codes = unicode::decode(text);
  if (level != Cleanup::none) codes = fix_text(codes, level);
  if (codes.find(U'&') != std::u32string::npos) codes = html::unescape(html::unescape(codes));
  collapse_space(codes);
  return codes;
}

}  // namespace

std::string cleaned_caption(std::string_view text, const std::string& cleanup) {
  if (cleanup == "none") return std::string(text);
  if (cleanup == "lower") return clean_for_clip(text, Cleanup::full);
  const bool siglip = cleanup == "siglip" || cleanup == "siglip_cased";
  std::u32string codes = siglip ? unicode::decode(text) : repaired_caption(text, Cleanup::full);
  if (cleanup != "whitespace") {
    if (cleanup == "canonicalize") std::replace(codes.begin(), codes.end(), U'_', U' ');
    // The lower case of a sigma depends on what follows it, so the order of the steps matters. transformers converts to lower case before
    // it removes punctuation. OpenCLIP removes punctuation first.
    if (cleanup == "siglip") lower_case(codes);
    std::erase_if(codes, is_ascii_punctuation);
    if (cleanup == "canonicalize") lower_case(codes);
    collapse_space(codes);
  }
  return unicode::encode(codes);
}

std::string clean_for_clip(std::string_view text, Cleanup level) {
  std::u32string codes = repaired_caption(text, level);
  lower_case(codes);
  return unicode::encode(codes);
}

bool is_plain(std::string_view text) {
  static constexpr std::array<bool, 256> plain_bytes = [] {
    std::array<bool, 256> out{};
    for (std::size_t byte = 0x20; byte < 0x7F; ++byte) out[byte] = byte != '&';
    out['\t'] = out['\n'] = true;
    return out;
  }();
  bool plain = true;
  for (const char c : text) plain &= plain_bytes[static_cast<std::uint8_t>(c)];
  return plain;
}

}  // namespace tessera
