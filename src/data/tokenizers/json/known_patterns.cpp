#include <algorithm>
#include <array>

#include "src/data/tokenizers/json/characters.h"
#include "src/data/tokenizers/json/pattern.h"

namespace tessera::json_tokenizer {

const std::string_view gpt2_pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

constexpr std::uint16_t of_words = letter | number | white_space;

// Returns the end of a run of characters that are neither letters, numbers nor white space.
std::size_t end_of_others(std::string_view text, std::size_t at) {
  for (std::size_t next = at; next < text.size(); at = next)
    if ((next_class(text, next) & of_words) != 0) break;
  return at;
}

// Returns the end of the contraction ('s|'t|'re|'ve|'m|'ll|'d) whose apostrophe is at `at`, or 0 if there is none. With `any_case`, ignores
// case; U+017F then counts as an s.
template <bool any_case>
std::size_t end_of_contraction(std::string_view text, std::size_t at) {
  std::array<char, 2> letters{};
  std::array<std::size_t, 2> ends{};
  std::size_t next = at + 1;
  for (std::size_t i = 0; i < 2 && next < text.size(); ++i) {
    const char32_t code = next_code(text, next);
    const char32_t lower = !any_case ? code : code == 0x17F ? U's' : code >= 'A' && code <= 'Z' ? code + 32 : code;
    letters[i] = lower < 0x80 ? static_cast<char>(lower) : '\0';
    ends[i] = next;
  }
  const std::string_view two(letters.data(), 2);
  if (two[0] == 's' || two[0] == 't' || two[0] == 'm' || two[0] == 'd') return ends[0];
  return two == "re" || two == "ve" || two == "ll" ? ends[1] : 0;
}

// Returns the end of the match of \s+(?!\S)|\s+. The match is a run of white space. It leaves out the last character of the run if the run
// has several characters and text follows it.
std::size_t end_of_space(std::string_view text, std::size_t at) {
  const std::size_t end = end_of_row(text, at, white_space);
  if (end == text.size()) return end;
  const std::size_t last = before(text, end);
  return last > at ? last : end;
}

std::size_t end_of_gpt2(std::string_view text, std::size_t at) {
  if (text[at] == '\'')
    if (const std::size_t found = end_of_contraction<false>(text, at); found != 0) return found;
  std::size_t next = text[at] == ' ' && at + 1 < text.size() ? at + 1 : at;
  const std::uint16_t first = next_class(text, next) & of_words;
  if (first == letter || first == number) return end_of_row(text, next, first);
  if (first == 0) return end_of_others(text, next);
  return end_of_space(text, at);
}

// The split pattern of Llama 3 (splits numbers into pieces of up to three digits) and of Qwen 2 (splits numbers into single digits).
template <int digits>
std::size_t end_of_cl100k(std::string_view text, std::size_t at) {
  if (text[at] == '\'')
    if (const std::size_t found = end_of_contraction<true>(text, at); found != 0) return found;
  std::size_t next = at;
  const std::uint16_t first = next_class(text, next) & of_words;
  if (first == letter) return end_of_row(text, next, letter);
  const bool line_break = text[at] == '\r' || text[at] == '\n';
  if (first != number && !line_break && next < text.size() && (class_of(code_at(text, next)) & letter) != 0)
    return end_of_row(text, next, letter);
  if (first == number) {
    for (int i = 1; i < digits && next < text.size() && (class_of(code_at(text, next)) & number) != 0; ++i) next += length_of(text[next]);
    return next;
  }
  const bool spaced = text[at] == ' ' && next < text.size() && (class_of(code_at(text, next)) & of_words) == 0;
  if (first == 0 || spaced) {
    const std::size_t end = end_of_others(text, next);
    return std::min(text.find_first_not_of("\r\n", end), text.size());
  }
  const std::size_t row = end_of_row(text, at, white_space);
  const std::size_t last_break = text.substr(at, row - at).find_last_of("\r\n");
  return last_break != std::string_view::npos ? at + last_break + 1 : end_of_space(text, at);
}

/// A pattern whose matches cover the text. end_of(text, at) returns the end of the match at `at`.
template <std::size_t end_of(std::string_view, std::size_t)>
void find_covering(std::string_view text, std::vector<Span>& out) {
  for (std::size_t at = 0; at < text.size(); at = out.back().end) out.push_back({at, end_of(text, at)});
}

// The kinds of characters that a published CLIP tokenizer.json distinguishes: letter, number, white space, and others (0).
struct PublishedClip {
  static std::uint16_t kind(char32_t code) { return class_of(code) & of_words; }
  static constexpr bool any_case = false;
};

// The same for OpenCLIP's tokenizer. No part of its pattern matches U+0345, because the Python package `regex` treats this character as a
// letter when it tests a negated set, but not when it tests \p{L}.
struct OpenClip {
  static constexpr std::uint16_t unmatched = 0x8000;
  static std::uint16_t kind(char32_t code) {
    const std::uint16_t classes = class_of(code);
    if ((classes & of_words) != 0 || (classes & (newer_letter | newer_number | control | mark)) == 0) return classes & of_words;
    if ((classes & newer_letter) != 0) return letter;
    if ((classes & newer_number) != 0) return number;
    if (code >= 0x1C && code <= 0x1F) return white_space;
    return code == 0x345 ? unmatched : std::uint16_t{0};
  }
  static constexpr bool any_case = true;
};

/// CLIP's pattern, which does not match white space. `tokens` are special tokens that are matches of their own.
template <class Kinds>
class ClipPattern {
 public:
  explicit ClipPattern(std::vector<std::string_view> tokens = {}) : tokens_(std::move(tokens)) {
    for (char32_t code = 0; code < 0x80; ++code) ascii_[code] = Kinds::kind(code);
  }

  void operator()(std::string_view text, std::vector<Span>& out) const {
    for (std::size_t at = 0; at < text.size();) {
      std::size_t end = at;
      const std::uint16_t kind = next_kind(text, end);
      if (kind == letter) {
        end = end_of_kind(text, end, letter);
      } else if (kind != number) {
        const std::size_t special = end_of_special(text, at);
        end = special != 0 ? special : end_of_kind(text, end, kind);
      }
      if (kind == letter || kind == number || kind == 0) out.push_back({at, end});
      at = end;
    }
  }

 private:
  std::uint16_t next_kind(std::string_view text, std::size_t& at) const {
    const auto byte = static_cast<std::uint8_t>(text[at]);
    if (byte < 0x80) return ++at, ascii_[byte];
    return Kinds::kind(next_code(text, at));
  }

  std::size_t end_of_kind(std::string_view text, std::size_t at, std::uint16_t kind) const {
    for (std::size_t next = at; next < text.size(); at = next)
      if (next_kind(text, next) != kind) break;
    return at;
  }

  // Returns the end of the special token or the contraction at `at`, or 0 if there is none.
  std::size_t end_of_special(std::string_view text, std::size_t at) const {
    if (text[at] == '\'') return end_of_contraction<Kinds::any_case>(text, at);
    if (text[at] == '<')
      for (const std::string_view token : tokens_)
        if (text.substr(at).starts_with(token)) return at + token.size();
    return 0;
  }

  std::vector<std::string_view> tokens_;
  std::array<std::uint16_t, 128> ascii_{};  // kinds of the ASCII characters
};

}  // namespace

Pattern make_known_pattern(const std::string& regex) {
  const std::string contractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|";
  const std::string rest = "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
  const std::string clip = "'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+";
  if (regex == gpt2_pattern) return find_covering<end_of_gpt2>;
  if (regex == clip) return ClipPattern<PublishedClip>();
  if (regex == "<\\|startoftext\\|>|<\\|endoftext\\|>|" + clip) return ClipPattern<PublishedClip>({"<|startoftext|>", "<|endoftext|>"});
  if (regex == contractions + "\\p{N}{1,3}" + rest) return find_covering<end_of_cl100k<3>>;
  if (regex == contractions + "\\p{N}" + rest) return find_covering<end_of_cl100k<1>>;
  return nullptr;
}

Pattern make_open_clip_pattern() {
  return ClipPattern<OpenClip>({"<start_of_text>", "<\u017Ftart_of_text>", "<end_of_text>"});  // ignores case, so U+017F counts as an s
}

}  // namespace tessera::json_tokenizer
