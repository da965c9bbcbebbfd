#include "src/evaluation/token_spans.h"

namespace tessera {
namespace {

bool is_space(char letter) {
  return letter == ' ' || (letter >= '\t' && letter <= '\r');
}

bool is_ascii(char letter) {
  return static_cast<unsigned char>(letter) < 0x80;
}

char lower(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

void skip_spaces(std::string_view text, std::size_t& at) {
  while (at < text.size() && is_space(text[at])) ++at;
}

/// Moves past the UTF-8 character at `at`.
void skip_character(std::string_view text, std::size_t& at) {
  constexpr unsigned kContinuationMask = 0xC0, kContinuation = 0x80;
  do ++at;
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & kContinuationMask) == kContinuation);
}

bool same_character(char a, char b) {
  return !is_ascii(a) || !is_ascii(b) || lower(a) == lower(b);
}

}  // namespace

std::optional<std::vector<std::array<std::int64_t, 2>>> token_spans(std::string_view text,
                                                                    const std::vector<std::string>& tokens, bool cut) {
  std::vector<std::array<std::int64_t, 2>> spans;
  std::size_t at = 0;
  for (const std::string& token : tokens) {
    std::size_t begin = at, in_token = 0;
    skip_spaces(token, in_token);
    if (in_token < token.size()) skip_spaces(text, begin);
    std::size_t end = begin;
    for (; in_token < token.size(); skip_spaces(token, in_token)) {
      skip_spaces(text, end);
      if (end >= text.size() || !same_character(text[end], token[in_token])) return std::nullopt;
      skip_character(text, end);
      skip_character(token, in_token);
    }
    spans.push_back({static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end)});
    at = end;
  }
  skip_spaces(text, at);
  if (at < text.size() && !cut) return std::nullopt;
  return spans;
}

}  // namespace tessera
