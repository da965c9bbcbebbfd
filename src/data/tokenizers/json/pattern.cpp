#include "src/data/tokenizers/json/pattern.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "src/data/tokenizers/json/characters.h"
#include <tessera/base/error.h>

namespace tessera::json_tokenizer {
namespace {

constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

/// The characters that a run consists of: one character, or the characters of a class.
struct Members {
  char32_t character = 0;
  std::uint16_t classes = 0;  // classes of the run's characters, as bits; if 0, the run repeats `character`
  bool negated = false;

  bool has(char32_t code) const {
    return (classes == 0 ? code == character : (class_of(code) & classes) != 0) != negated;
  }
};

Pattern make_row_pattern(const Members& members, std::size_t least, std::size_t most) {
  return [=](std::string_view text, std::vector<Span>& out) {
    for (std::size_t at = 0; at < text.size();) {
      std::size_t count = 0, end = at, next = at;
      while (end < text.size() && count < most && members.has(next_code(text, next))) {
        end = next;
        ++count;
      }
      if (count >= least) out.push_back({at, end});
      at = count > 0 ? end : next;
    }
  };
}

/// Parses the character or class at the start of `rest`, and removes it from `rest`.
std::optional<Members> take_members(std::string_view& rest) {
  constexpr std::pair<std::string_view, Members> spelled[] = {
    {"[\\p{L}]", {0, letter}}, {"\\p{L}", {0, letter}}, {"[\\p{N}]", {0, number}}, {"\\p{N}", {0, number}},
    {"[\\s]", {0, white_space}}, {"\\s", {0, white_space}}, {"\\S", {0, white_space, true}}, {"[^\\s]", {0, white_space, true}},
    {"\\n", {U'\n'}}, {"\\r", {U'\r'}}, {"\\t", {U'\t'}}};
  for (const auto& [text, members] : spelled)
    if (rest.starts_with(text)) return rest.remove_prefix(text.size()), members;
  constexpr std::string_view special = "\\[](){}.*+?|^$";
  if (rest.empty() || special.find(rest[0]) != std::string_view::npos) return std::nullopt;
  std::size_t at = 0;
  const char32_t code = next_code(rest, at);
  rest.remove_prefix(at);
  return Members{code};
}

/// Parses the repetition at the end of a pattern: nothing, `+`, `{n}`, `{n,}` or `{n,m}`.
std::optional<std::pair<std::size_t, std::size_t>> count_of(std::string_view rest) {
  if (rest.empty()) return std::pair<std::size_t, std::size_t>{1, 1};
  if (rest == "+") return std::pair{std::size_t{1}, unlimited};
  if (rest.size() < 3 || rest.front() != '{' || rest.back() != '}') return std::nullopt;
  rest = rest.substr(1, rest.size() - 2);
  const auto number_of = [](std::string_view digits) -> std::optional<std::size_t> {
    std::size_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc{} && end == digits.data() + digits.size() && value > 0 && value < 1000 ? std::optional(value) : std::nullopt;
  };
  const std::size_t comma = rest.find(',');
  const auto least = number_of(rest.substr(0, comma));
  if (!least) return std::nullopt;
  if (comma == std::string_view::npos) return std::pair{*least, *least};
  if (comma + 1 == rest.size()) return std::pair{*least, unlimited};
  const auto most = number_of(rest.substr(comma + 1));
  if (!most || *most < *least) return std::nullopt;
  return std::pair{*least, *most};
}

/// Returns a scanner for runs of one class of characters, such as `\s+` or ` {2,}`; null for any other expression.
Pattern find_row_pattern(std::string_view regex) {
  const auto members = take_members(regex);
  const auto count = members ? count_of(regex) : std::nullopt;
  return count ? make_row_pattern(*members, count->first, count->second) : nullptr;
}

}  // namespace

Pattern make_text_pattern(const std::string& text) {
  return [wanted = text](std::string_view searched, std::vector<Span>& out) {
    for (std::size_t at = searched.find(wanted); at != std::string_view::npos; at = searched.find(wanted, at + wanted.size()))
      out.push_back({at, at + wanted.size()});
  };
}

Pattern make_class_pattern(std::uint16_t classes) {
  return [classes](std::string_view text, std::vector<Span>& out) {
    for (std::size_t begin = 0, at = 0; at < text.size(); begin = at)
      if ((next_class(text, at) & classes) != 0) out.push_back({begin, at});
  };
}

Pattern make_length_pattern(std::size_t count) {
  return make_row_pattern({unicode::code_points, 0, /*negated=*/true}, 1, count);
}

Pattern make_pattern(const nlohmann::json& json, const std::string& origin) {
  const bool single = json.is_object() && json.size() == 1;
  const auto holds = [&](const char* key) { return single && json.contains(key) && json.at(key).is_string(); };
  if (holds("String")) {
    const auto text = json.at("String").get<std::string>();
    if (text.empty()) user_error(origin, ": a pattern is empty");
    return make_text_pattern(text);
  }
  if (!holds("Regex")) user_error(origin, ": a pattern is neither a String nor a Regex: no other kind is supported");
  const auto regex = json.at("Regex").get<std::string>();
  if (Pattern known = make_known_pattern(regex)) return known;
  if (Pattern row = find_row_pattern(regex)) return row;
  return make_icu_pattern(regex, origin);
}

}  // namespace tessera::json_tokenizer
