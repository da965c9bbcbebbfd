#include "src/data/formats/sentences.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace tessera {
namespace {

constexpr std::string_view kEndOfText = "</s>";

// The non-ASCII characters that Python treats as white space, encoded in UTF-8.
constexpr std::array<std::string_view, 19> kWideSpaces = {
    "\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x81", "\xE2\x80\x82", "\xE2\x80\x83",
    "\xE2\x80\x84", "\xE2\x80\x85", "\xE2\x80\x86", "\xE2\x80\x87", "\xE2\x80\x88", "\xE2\x80\x89", "\xE2\x80\x8A",
    "\xE2\x80\xA8", "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80"};

bool is_ascii_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r') || (c >= '\x1C' && c <= '\x1F');
}

// Returns the length in bytes of the white space character at one end of a text, or 0 if there is none. `outermost` is the byte at
// that end. stands(c) returns whether the text has the non-ASCII white space character c at that end.
template <class Stands>
std::size_t space_at(char outermost, const Stands& stands) {
  if (is_ascii_space(outermost)) return 1;
  const auto found = std::ranges::find_if(kWideSpaces, stands);
  return found == kWideSpaces.end() ? 0 : found->size();
}

std::string_view without_space(std::string_view text) {
  while (!text.empty()) {
    const std::size_t count = space_at(text.front(), [&](std::string_view space) { return text.starts_with(space); });
    if (count == 0) break;
    text.remove_prefix(count);
  }
  while (!text.empty()) {
    const std::size_t count = space_at(text.back(), [&](std::string_view space) { return text.ends_with(space); });
    if (count == 0) break;
    text.remove_suffix(count);
  }
  return text;
}

}  // namespace

std::vector<std::string> caption_sentences(std::string_view text) {
  std::vector<std::string> out;
  const auto add = [&](std::string_view piece) {
    if (const std::string_view sentence = without_space(piece); !sentence.empty()) out.emplace_back(sentence);
  };
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t mark = text[at] == '\n' || text[at] == '.'        ? 1
                             : text.substr(at).starts_with(kEndOfText) ? kEndOfText.size()
                                                                       : 0;
    if (mark > 0) add(text.substr(begin, at - begin));
    at += std::max<std::size_t>(mark, 1);
    if (mark > 0) begin = at;
  }
  add(text.substr(begin));
  return out;
}

}  // namespace tessera
