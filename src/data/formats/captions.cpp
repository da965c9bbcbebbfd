#include "src/data/formats/captions.h"

#include <algorithm>
#include <array>

#include <tessera/base/error.h>

namespace tessera {
namespace {

constexpr std::string_view kEndOfText = "</s>";

// The characters that Python treats as white space, encoded in UTF-8.
constexpr std::array<std::string_view, 29> kSpaces = {
    " ",            "\t",           "\n",           "\v",           "\f",           "\r",           "\x1C",         "\x1D",
    "\x1E",         "\x1F",         "\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x81", "\xE2\x80\x82",
    "\xE2\x80\x83", "\xE2\x80\x84", "\xE2\x80\x85", "\xE2\x80\x86", "\xE2\x80\x87", "\xE2\x80\x88", "\xE2\x80\x89", "\xE2\x80\x8A",
    "\xE2\x80\xA8", "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80"};

std::string_view without_space(std::string_view text) {
  const auto length = [](const auto& is_there) {
    const auto* const found = std::ranges::find_if(kSpaces, is_there);
    return found == kSpaces.end() ? 0 : found->size();
  };
  while (const std::size_t count = length([&](std::string_view space) { return text.starts_with(space); })) text.remove_prefix(count);
  while (const std::size_t count = length([&](std::string_view space) { return text.ends_with(space); })) text.remove_suffix(count);
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
    const std::size_t mark = text[at] == '\n' || text[at] == '.' ? 1 : text.substr(at).starts_with(kEndOfText) ? kEndOfText.size() : 0;
    if (mark > 0) add(text.substr(begin, at - begin));
    at += std::max<std::size_t>(mark, 1);
    if (mark > 0) begin = at;
  }
  add(text.substr(begin));
  return out;
}

std::string LineBreaks::describe() const {
  return concat(with_thousands(broken_), " of ", with_thousands(captions_), " captions have line breaks; each is one caption");
}

}  // namespace tessera
