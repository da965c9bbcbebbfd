#include <algorithm>
#include <cctype>
#include <memory>

#include <unicode/regex.h>

#include "src/data/tokenizers/json/characters.h"
#include "src/data/tokenizers/json/part.h"
#include "src/data/tokenizers/json/pattern.h"
#include <tessera/base/error.h>

namespace tessera::json_tokenizer {
namespace {

struct Category {
  std::string_view name, runs;
};

#include "src/data/tokenizers/tables/newer_categories.inc"

/// Returns those characters of a category that older versions of ICU lack. If `category` is one letter, it means all categories that start
/// with this letter.
std::string newer_members(std::string_view category) {
  std::string out;
  for (const auto& [name, runs] : newer_categories) {
    if (!name.starts_with(category)) continue;
    for (const unicode::Run& run : unicode::parse_runs(runs)) {
      if (run.stride != 1) {
        for (char32_t code = run.first; code <= run.last; code += run.stride) unicode::append_utf8(out, code);
        continue;
      }
      unicode::append_utf8(out, run.first);
      out += '-';
      unicode::append_utf8(out, run.last);
    }
  }
  return out;
}

/// Returns the set that \w matches. In Oniguruma, the last characters of the set count as word characters only outside of brackets.
std::string word_set(bool in_brackets) {
  return "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}" + newer_members("L") + newer_members("M") + newer_members("Nd") + newer_members("Nl") +
         (in_brackets ? "]" : "\\u00B2\\u00B3\\u00B9\\u00BC-\\u00BE]");
}

/// Returns what \b matches: places with a word character on one side only. With `same`, returns what \B matches: the other places.
std::string word_boundary(bool same) {
  const std::string word = word_set(false), after = same ? "(?=" : "(?!", after_other = same ? "(?!" : "(?=";
  return "(?:(?<=" + word + ")" + after + word + ")|(?<!" + word + ")" + after_other + word + "))";
}

/// Translates a regular expression from Oniguruma's dialect to ICU's. The dialects differ in their character classes and in
/// some of the syntax.
class Translation {
 public:
  Translation(const std::string& regex, const std::string& origin) : regex_(regex), origin_(origin) {
    while (at_ < regex_.size()) {
      if (regex_[at_] == '\\')
        escape();
      else if (regex_.compare(at_, 2, "(?") == 0)
        group();
      else if (regex_[at_] == '{' && depth_ == 0)
        interval();
      else
        plain();
    }
  }
  std::string text() && { return std::move(out_); }

 private:
  [[noreturn]] void not_understood() const { user_error(origin_, ": the regular expression ", shown(regex_), " is not supported"); }

  void plain() {
    if (regex_[at_] == '[') ++depth_;
    if (regex_[at_] == ']' && depth_ > 0) --depth_;
    out_ += regex_[at_++];
  }

  void escape() {
    if (at_ + 1 == regex_.size()) not_understood();
    const char next = regex_[at_ + 1];
    at_ += 2;
    switch (next) {
      case 's': out_ += "\\p{White_Space}"; break;
      case 'S': out_ += "\\P{White_Space}"; break;
      case 'w': out_ += word_set(depth_ > 0); break;
      case 'W': out_ += "[^" + word_set(depth_ > 0) + "]"; break;
      case 'b': out_ += depth_ > 0 ? "\\u0008" : word_boundary(false); break;
      case 'B': out_ += depth_ > 0 ? "B" : word_boundary(true); break;
      case 'd': out_ += "[\\p{Nd}" + newer_members("Nd") + "]"; break;
      case 'D': out_ += "[^\\p{Nd}" + newer_members("Nd") + "]"; break;
      case 'h': out_ += "[0-9a-fA-F]"; break;
      case 'H': out_ += "[^0-9a-fA-F]"; break;
      case 'p': case 'P': property(next); break;
      case 'G': case 'K': case 'g': case 'k': not_understood();
      default: (out_ += '\\') += next;
    }
  }

  // \p{^L} means \P{L}, and \pL means \p{L}.
  void property(char letter) {
    bool negated = letter == 'P';
    if (at_ == regex_.size()) not_understood();
    std::string name(1, regex_[at_++]);
    if (name == "{") {
      const std::size_t end = regex_.find('}', at_);
      if (end == std::string::npos) not_understood();
      name = regex_.substr(at_, end - at_);
      at_ = end + 1;
    }
    if (name.starts_with('^')) {
      negated = !negated;
      name.erase(0, 1);
    }
    if (name.empty() || name.find_first_of("[]{}\\") != std::string::npos) not_understood();
    const bool is_word = std::ranges::equal(name, std::string_view("word"), {}, [](unsigned char c) { return std::tolower(c); });
    out_ += (negated ? "[^" : "[") + (is_word ? word_set(depth_ > 0) : "\\p{" + name + "}" + newer_members(name)) + "]";
  }

  // In Oniguruma, the flag m, as in (?m:...), lets a dot match line breaks. In ICU, the flag s does this.
  void group() {
    out_ += "(?";
    at_ += 2;
    const std::size_t end = regex_.find_first_not_of("imx-", at_);
    const bool flags = end != std::string::npos && (regex_[end] == ':' || regex_[end] == ')');
    for (; flags && at_ < end; ++at_) out_ += regex_[at_] == 'm' ? 's' : regex_[at_];
  }

  // In Oniguruma, {,n} means {0,n}, and a plus after an interval repeats the interval. In ICU, such a plus would make the interval
  // possessive.
  void interval() {
    const std::size_t end = regex_.find('}', at_);
    const std::string inside = end == std::string::npos ? "" : regex_.substr(at_ + 1, end - at_ - 1);
    if (inside.empty() || inside.find_first_not_of("0123456789,") != std::string::npos) {
      out_ += "\\{";
      ++at_;
      return;
    }
    at_ = end + 1;
    if (at_ < regex_.size() && regex_[at_] == '+') {
      if (inside != "1" && !inside.starts_with("1,")) not_understood();
      ++at_;
      out_ += '+';
      return;
    }
    out_ += inside.front() == ',' ? "{0" + inside + "}" : "{" + inside + "}";
  }

  const std::string& regex_;
  const std::string& origin_;
  std::string out_;
  std::size_t at_ = 0;
  int depth_ = 0;  // nesting depth of brackets
};

/// Converts positions counted in UTF-16 units to positions in the bytes of UTF-8. Positions must not decrease from call to
/// call.
class Place {
 public:
  explicit Place(std::string_view text) : text_(text) {}
  std::size_t bytes_of(std::int32_t units) {
    while (units_ < units) units_ += next_code(text_, bytes_) < 0x10000 ? 1 : 2;
    return bytes_;
  }

 private:
  std::string_view text_;
  std::size_t bytes_ = 0;
  std::int32_t units_ = 0;
};

}  // namespace

Pattern make_icu_pattern(const std::string& regex, const std::string& origin) {
  UErrorCode compiled = U_ZERO_ERROR;
  constexpr std::uint32_t flags = UREGEX_MULTILINE | UREGEX_UNIX_LINES;
  const std::string translated = Translation(regex, origin).text();
  const std::shared_ptr<const icu::RegexPattern> pattern(
      icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(translated), flags, compiled));
  if (U_FAILURE(compiled)) user_error(origin, ": the regular expression ", shown(regex), " is not supported");
  return [pattern, regex](std::string_view utf8, std::vector<Span>& out) {
    const icu::UnicodeString text = icu::UnicodeString::fromUTF8(icu::StringPiece(utf8.data(), static_cast<std::int32_t>(utf8.size())));
    UErrorCode status = U_ZERO_ERROR;
    const std::unique_ptr<icu::RegexMatcher> matcher(pattern->matcher(text, status));
    Place begins(utf8), ends(utf8);
    std::int32_t last_end = -1;
    for (std::int32_t from = 0; U_SUCCESS(status) && from <= text.length() && matcher->find(from, status) && U_SUCCESS(status);) {
      const std::int32_t begin = matcher->start(status), end = matcher->end(status);
      if (begin == end && end == last_end) {  // an empty match right after a match is ignored
        if (from >= text.length()) break;
        from = text.moveIndex32(from, 1);
        continue;
      }
      out.push_back({begins.bytes_of(begin), ends.bytes_of(end)});
      from = last_end = end;
    }
    if (U_FAILURE(status))
      user_error("tokenizer_json: the regular expression ", shown(regex), " failed on a text of ", utf8.size(), " bytes");
  };
}

}  // namespace tessera::json_tokenizer
