#include "src/data/tokenizers/caption_cleanup.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "src/data/tokenizers/fix_encoding.h"
#include "src/data/tokenizers/html.h"
#include "src/data/tokenizers/json/characters.h"
#include "src/data/tokenizers/normalization.h"
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

using unicode::Replaced;

#include "src/data/tokenizers/tables/width.inc"

// Returns the replacements of ligatures, of wide and narrow characters, of quotes and of line separators.
const std::unordered_map<char32_t, std::u32string>& replacements() {
  static const std::unordered_map<char32_t, std::u32string> all = [] {
    std::unordered_map<char32_t, std::u32string> out = {
        {0x132, U"IJ"}, {0x133, U"ij"}, {0x149, U"'n"}, {0x1C4, U"D\u017D"}, {0x1C5, U"D\u017E"}, {0x1C6, U"d\u017E"},
        {0x1C7, U"LJ"}, {0x1C8, U"Lj"}, {0x1C9, U"lj"}, {0x1CA, U"NJ"}, {0x1CB, U"Nj"}, {0x1CC, U"nj"}, {0x1F1, U"DZ"}, {0x1F2, U"Dz"},
        {0x1F3, U"dz"}, {0xFB00, U"ff"}, {0xFB01, U"fi"}, {0xFB02, U"fl"}, {0xFB03, U"ffi"}, {0xFB04, U"ffl"}, {0xFB05, U"\u017Ft"},
        {0xFB06, U"st"}, {0xFFE3, U" \u0304"}, {0x3000, U" "}, {0x2028, U"\n"}, {0x2029, U"\n"}, {0x2BC, U"'"}, {0x2018, U"'"},
        {0x2019, U"'"}, {0x201A, U"'"}, {0x201B, U"'"}, {0x201C, U"\""}, {0x201D, U"\""}, {0x201E, U"\""}, {0x201F, U"\""}};
    for (const Replaced& run : widths)
      for (std::size_t i = 0; i < run.text.size(); ++i) out.emplace(run.first + static_cast<char32_t>(i), run.text.substr(i, 1));
    return out;
  }();
  return all;
}

// Returns the table of all characters that at least one step changes, moves or checks.
const unicode::PageTable<std::uint8_t>& unsettled_characters() {
  static const unicode::PageTable<std::uint8_t> table = [] {
    unicode::PageTable<std::uint8_t> out("0-8 B D-1F 26 7F-9F 206A-206F FEFF FF01-FFEF FFF9-FFFC");
    for (const auto& [code, replacement] : replacements()) out.at(code) = 1;
    unicode::mark_changing(out, unicode::Form::nfc, 1);
    return out;
  }();
  return table;
}

// Fixes C1 controls, ligatures, widths, quotes and line breaks. Handles single characters, except that \r\n is handled as a
// pair.
std::u32string map_characters(std::u32string_view text) {
  const unicode::PageTable<std::uint8_t>& unsettled = unsettled_characters();
  std::u32string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (unsettled[text[i]] == 0) {
      out += text[i];
      continue;
    }
    const char32_t code = mojibake::windows_1252(text[i]);
    const auto found = replacements().find(code);
    if (found != replacements().end())
      out += found->second;
    else if (code != U'\r')
      out += code;
    else if (i + 1 >= text.size() || text[i + 1] != U'\n')
      out += U'\n';
  }
  return out;
}

// Returns the index after the terminal escape that starts at `i` (ESC [ digits and semicolons, a letter), or `i` if there is none.
std::size_t skip_terminal_escape(std::u32string_view text, std::size_t i) {
  if (i + 1 >= text.size() || text[i] != 0x1B || text[i + 1] != U'[') return i;
  std::size_t k = i + 2;
  const auto is_decimal = [](char32_t code) { return (json_tokenizer::class_of(code) & json_tokenizer::decimal) != 0; };
  while (k < text.size() && (text[k] == U';' || is_decimal(text[k]))) ++k;
  const bool letter = k < text.size() && ((text[k] >= U'a' && text[k] <= U'z') || (text[k] >= U'A' && text[k] <= U'Z'));
  return letter ? k + 1 : i;
}

bool is_useless_control(char32_t code) {
  static const unicode::PageTable<std::uint8_t> useless("0-8 B E-1F 7F 206A-206F FEFF FFF9-FFFC");
  return useless[code] != 0;
}

std::u32string remove_controls(std::u32string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t next = skip_terminal_escape(text, i);
    if (next == i && !is_useless_control(text[i])) out += text[i];
    i = next == i ? i + 1 : next;
  }
  return out;
}

// Returns whether no step would change the text.
bool is_settled(std::u32string_view text, Cleanup level) {
  const unicode::PageTable<std::uint8_t>& unsettled = unsettled_characters();
  bool ascii = true;
  for (const char32_t code : text) {
    if (unsettled[code] != 0) return false;
    ascii = ascii && code < 0x80;
  }
  return ascii || level < Cleanup::mojibake || !mojibake::is_bad(text);
}

std::u32string fix_segment(std::u32string text, bool entities, Cleanup level) {
  do {
    std::u32string next = entities ? html::unescape_strict(text) : text;
    next = unicode::compose(remove_controls(map_characters(fix_encoding(std::move(next), level))));
    if (next == text) break;
    text = std::move(next);
  } while (!is_settled(text, level));
  return text;
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

std::u32string fix_text(std::u32string_view text, Cleanup level) {
  if (level == Cleanup::none) return std::u32string(text);
  constexpr std::size_t longest_segment = 1'000'000;  // ftfy's max_decode_length
  std::u32string out;
  out.reserve(text.size());
  bool entities = true;  // whether to unescape entities; false once a segment looks like HTML
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t line_end = text.find(U'\n', begin);
    std::size_t end = line_end == std::u32string_view::npos ? text.size() : line_end + 1;
    end = std::min(end, begin + longest_segment);
    const std::u32string_view segment = text.substr(begin, end - begin);
    if (segment.find(U'<') != std::u32string_view::npos) entities = false;
    if (is_settled(segment, level))
      out += segment;
    else
      out += fix_segment(std::u32string(segment), entities, level);
    begin = end;
  }
  return out;
}

}  // namespace tessera
