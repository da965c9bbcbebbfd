#pragma once

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

/// The option --set KEY=VALUE, which works the same in all programs. Several words may follow one --set if they are assignments; other
/// words, such as file arguments, are never mistaken for settings.
namespace tessera::tools {

/// Returns whether a word is like "a.b=c": a setting's name, an equals sign, and any value.
inline bool is_assignment(const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0) return false;
  const auto in_a_name = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; };
  return std::isdigit(static_cast<unsigned char>(word[0])) == 0 &&
         std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals), in_a_name);
}

/// Detects assignments that the shell split because they were not quoted. At braces, the shell makes several words with the same key. At
/// spaces, it cuts the value into parts. Throws CLI::ValidationError, which asks the user to quote the value.
class UnquotedWords {
 public:
  explicit UnquotedWords(std::string option) : option_(std::move(option)) {}

  void see(const std::string& word) {
    const std::string key = word.substr(0, word.find('='));
    if (!keys_.insert(key).second)
      throw CLI::ValidationError(
          option_, key + " is given twice in one go: if the shell has expanded braces, quote the value: " + option_ +
                       " " + key + "='...{0..9}...'");
    last_ = word;
  }

  /// Checks that the last assignment closes its brackets. The error message also shows `next`, the stray word after the assignment.
  void end(const std::string& next) const {
    const auto count = [&](char c) { return std::count(last_.begin(), last_.end(), c); };
    if (count('{') > count('}') || count('[') > count(']'))
      throw CLI::ValidationError(option_, last_ + " " + next + ": a bracket is not closed: quote the value: " +
                                              option_ + " '" + last_ + " " + next + " ...'");
  }

 private:
  std::string option_, last_;
  std::set<std::string> keys_;
};

/// Throws CLI::ValidationError for "--set a.b = 1", which the shell splits into three words after the option. `word` is the first of them,
/// and `rest` has the following words.
inline void refuse_spaces(const std::string& option, const std::string& word, const std::vector<std::string>& rest) {
  if (word.find('=') != std::string::npos || rest.empty() || !rest[0].starts_with("=")) return;
  const std::string value = rest[0] != "=" ? rest[0].substr(1) : rest.size() > 1 ? rest[1] : "";
  throw CLI::ValidationError(option, "expected KEY=VALUE without spaces: " + option + " " + word + "=" + value);
}

/// Returns the command line with one option per assignment: --set a=1 b=2 -> --set a=1 --set b=2.
inline std::vector<std::string> spread_overrides(const std::vector<std::string>& words) {
  static const std::set<std::string> options = {"--set", "--tokenizer-set", "--loader"};
  std::vector<std::string> out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    out.push_back(words[i]);
    const std::string option = words[i].substr(0, words[i].find('='));
    if (!options.contains(option)) continue;
    UnquotedWords unquoted(option);
    if (option != words[i]) {
      unquoted.see(words[i].substr(option.size() + 1));
    } else if (i + 1 < words.size()) {
      unquoted.see(out.emplace_back(words[++i]));
      refuse_spaces(option, words[i], {words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end()});
    }
    for (; i + 1 < words.size() && is_assignment(words[i + 1]); ++i) {
      unquoted.see(words[i + 1]);
      out.insert(out.end(), {option, words[i + 1]});
    }
    if (i + 1 < words.size() && !words[i + 1].starts_with("-")) unquoted.end(words[i + 1]);
  }
  return out;
}

/// Adds --set or a similar option. `what` describes what the option sets.
inline void add_overrides(CLI::App& app, const std::string& option, std::vector<std::string>& overrides,
                          const std::string& what) {
  app.add_option(option, overrides, what + ": KEY=VALUE (VALUE is YAML; quote spaces and braces); several may follow")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

}  // namespace tessera::tools
