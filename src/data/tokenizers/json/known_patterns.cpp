#include <algorithm>
#include <array>

#include "src/data/tokenizers/json/characters.h"
#include "src/data/tokenizers/json/pattern.h"

namespace tessera::json_tokenizer {

const std::string_view gpt2_pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

constexpr std::uint16_t of_words = letter | number | white_space;

std::size_t length_at(std::string_view text, std::size_t at) {
  return length_of(text[at]);
}

// Returns the end of a run of characters that are neither letters, numbers nor white space.
std::size_t end_of_others(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    std::size_t next = at;
    if ((next_class(text, next) & of_words) != 0) break;
    at = next;
  }
  return at;
}

// Returns the end of the contraction ('s|'t|'re|'ve|'m|'ll|'d) whose apostrophe is at `at`, or 0 if there is none.
std::size_t end_of_contraction(std::string_view text, std::size_t at) {
  const std::string_view rest = text.substr(at + 1, 2);
  if (rest.empty()) return 0;
  if (rest[0] == 's' || rest[0] == 't' || rest[0] == 'm' || rest[0] == 'd') return at + 2;
  return rest == "re" || rest == "ve" || rest == "ll" ? at + 3 : 0;
}

// Does the same as end_of_contraction(), but ignores case. U+017F counts as an s.
std::size_t end_of_contraction_of_any_case(std::string_view text, std::size_t at) {
  std::array<char, 2> lower{};
  std::array<std::size_t, 2> ends{};
  std::size_t next = at + 1;
  for (std::size_t i = 0; i < 2 && next < text.size(); ++i) {
    const char32_t code = next_code(text, next);
    lower[i] = code == 0x17F ? 's' : code < 0x80 ? static_cast<char>(code >= 'A' && code <= 'Z' ? code + 32 : code) : '\0';
    ends[i] = next;
  }
  const std::array<char, 2>& c = lower;
  if (c[0] == 's' || c[0] == 't' || c[0] == 'm' || c[0] == 'd') return ends[0];
  return (c[0] == 'r' && c[1] == 'e') || (c[0] == 'v' && c[1] == 'e') || (c[0] == 'l' && c[1] == 'l') ? ends[1] : 0;
}

// Returns the end of the match of \s+(?!\S)|\s+. The match is a run of white space. It leaves out the last character of the run if the run
// has several characters and text follows it.
std::size_t end_of_space(std::string_view text, std::size_t at) {
  const std::size_t end = end_of_row(text, at, white_space);
  if (end == text.size()) return end;
  const std::size_t last = before(text, end);
  return last > at ? last : end;
}

struct Gpt2 {
  static std::size_t end(std::string_view text, std::size_t at) {
    if (text[at] == '\'')
      if (const std::size_t found = end_of_contraction(text, at); found != 0) return found;
    std::size_t from = at;
    if (text[at] == ' ' && at + 1 < text.size()) ++from;
    std::size_t next = from;
    const std::uint16_t first = next_class(text, next) & of_words;
    if (first == letter || first == number) return end_of_row(text, next, first);
    if (first == 0) return end_of_others(text, next);
    return end_of_space(text, at);
  }
};

// The split pattern of Llama 3 (splits numbers into pieces of up to three digits) and of Qwen 2 (splits numbers into single digits).
template <int digits>
struct Cl100k {
  static std::size_t end(std::string_view text, std::size_t at) {
    if (text[at] == '\'')
      if (const std::size_t found = end_of_contraction_of_any_case(text, at); found != 0) return found;
    std::size_t next = at;
    const std::uint16_t first = next_class(text, next) & of_words;
    if (first == letter) return end_of_row(text, next, letter);
    const bool line_break = text[at] == '\r' || text[at] == '\n';
    if (first != number && !line_break && next < text.size() && (class_of(code_at(text, next)) & letter) != 0)
      return end_of_row(text, next, letter);
    if (first == number) return end_of_number(text, next);
    const bool spaced = text[at] == ' ' && next < text.size() && (class_of(code_at(text, next)) & of_words) == 0;
    if (first == 0 || spaced) {
      std::size_t end = end_of_others(text, next);
      while (end < text.size() && (text[end] == '\r' || text[end] == '\n')) ++end;
      return end;
    }
    const std::size_t row = end_of_row(text, at, white_space);
    const std::size_t last_break = text.substr(at, row - at).find_last_of("\r\n");
    return last_break != std::string_view::npos ? at + last_break + 1 : end_of_space(text, at);
  }

 private:
  static std::size_t end_of_number(std::string_view text, std::size_t at) {
    for (int i = 1; i < digits && at < text.size() && (class_of(code_at(text, at)) & number) != 0; ++i) at += length_at(text, at);
    return at;
  }
};

/// A pattern whose matches cover the text.
template <class Scanner>
class CoveringPattern : public Pattern {
 public:
  void find(std::string_view text, std::vector<Span>& out) const override {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = Scanner::end(text, at);
      out.push_back({at, end});
      at = end;
    }
  }
};

// The kinds of characters that a published CLIP tokenizer.json distinguishes: letter, number, white space, and others (0).
struct PublishedClip {
  static std::uint16_t kind(char32_t code) { return class_of(code) & of_words; }
  static std::size_t end_of_contraction(std::string_view text, std::size_t at) { return json_tokenizer::end_of_contraction(text, at); }
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
  static std::size_t end_of_contraction(std::string_view text, std::size_t at) { return end_of_contraction_of_any_case(text, at); }
};

/// CLIP's pattern, which does not match white space. `tokens` are special tokens that are matches of their own.
template <class Kinds>
class ClipPattern : public Pattern {
 public:
  explicit ClipPattern(std::vector<std::string_view> tokens = {}) : tokens_(std::move(tokens)) {
    for (char32_t code = 0; code < 0x80; ++code) ascii_[code] = Kinds::kind(code);
  }

  void find(std::string_view text, std::vector<Span>& out) const override {
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
    if (text[at] == '\'') return Kinds::end_of_contraction(text, at);
    if (text[at] == '<')
      for (const std::string_view token : tokens_)
        if (text.substr(at).starts_with(token)) return at + token.size();
    return 0;
  }

  std::vector<std::string_view> tokens_;
  std::array<std::uint16_t, 128> ascii_{};  // kinds of the ASCII characters
};

}  // namespace

std::shared_ptr<const Pattern> make_known_pattern(const std::string& regex) {
  constexpr std::string_view contractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|";
  constexpr std::string_view rest = "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
  constexpr std::string_view clip = "'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+";
  const auto is_cl100k = [&](std::string_view digits) { return regex == std::string(contractions) + std::string(digits) + std::string(rest); };
  if (regex == gpt2_pattern) return std::make_shared<CoveringPattern<Gpt2>>();
  if (regex == clip) return std::make_shared<ClipPattern<PublishedClip>>();
  if (regex == "<\\|startoftext\\|>|<\\|endoftext\\|>|" + std::string(clip))
    return std::make_shared<ClipPattern<PublishedClip>>(std::vector<std::string_view>{"<|startoftext|>", "<|endoftext|>"});
  if (is_cl100k("\\p{N}{1,3}")) return std::make_shared<CoveringPattern<Cl100k<3>>>();
  if (is_cl100k("\\p{N}")) return std::make_shared<CoveringPattern<Cl100k<1>>>();
  return nullptr;
}

std::shared_ptr<const Pattern> make_open_clip_pattern() {
  // The pattern ignores case, so U+017F counts as an s.
  return std::make_shared<ClipPattern<OpenClip>>(std::vector<std::string_view>{"<start_of_text>", "<\u017Ftart_of_text>", "<end_of_text>"});
}

}  // namespace tessera::json_tokenizer
