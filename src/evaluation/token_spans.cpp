#include <algorithm>
#include <cctype>
#include <iterator>

#include "src/evaluation/token_spans.h"
#include <tessera/base/text.h>

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

/// Returns false for punctuation, spaces and special tokens, which have no text.
bool has_letters(std::string_view piece) {
  return std::ranges::any_of(piece, [](unsigned char letter) { return letter >= 0x80 || std::isalnum(letter) != 0; });
}

/// Returns true for the first byte of a character that is written without spaces between words: U+3000 to U+9FFF in UTF-8.
bool stands_alone(char letter) {
  const auto byte = static_cast<unsigned char>(letter);
  return byte >= 0xE3 && byte <= 0xE9;
}

}  // namespace

std::vector<std::string> token_texts(const Tokenizer& tokenizer, const std::vector<std::int64_t>& ids) {
  std::vector<std::string> texts;
  std::string before;
  for (auto end = ids.begin(); end != ids.end();) {
    const std::string text = tokenizer.decode({ids.begin(), ++end});
    // If a character's bytes are split between two ids, `text` does not always begin with `before`. The last id is then decoded alone.
    texts.push_back(text.starts_with(before) ? text.substr(before.size()) : tokenizer.decode({*std::prev(end)}));
    before = text;
  }
  return texts;
}

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

std::vector<TextWord> words_of(const std::string& text, const std::vector<std::string>& tokens, bool cut) {
  const auto spans = token_spans(text, tokens, cut);
  std::vector<TextWord> words;
  std::size_t begin = 0, end = 0;  // the last word in `text`
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const auto from = spans ? static_cast<std::size_t>((*spans)[t][0]) : 0, to = spans ? static_cast<std::size_t>((*spans)[t][1]) : 0;
    const std::string piece = spans ? text.substr(from, to - from) : std::string(strip(tokens[t]));
    if (!has_letters(piece)) continue;
    // If the tokens do not spell the text (a word is unknown), their own spaces separate words.
    const bool apart = spans ? text.substr(end, from - end).find_first_of(" \t\n\r") != std::string::npos : tokens[t].starts_with(' ');
    if (words.empty() || apart || stands_alone(piece.front())) {
      words.emplace_back();
      begin = from;
    }
    end = to;
    words.back().text = spans ? text.substr(begin, end - begin) : words.back().text + piece;
    if (spans) words.back().span = {static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end)};
    words.back().tokens.push_back(static_cast<std::int64_t>(t));
  }
  return words;
}

}  // namespace tessera
