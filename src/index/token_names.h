#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera::index {

/// The names of tokens in files and on the command line: the lines of a vocabulary file, or the tokens' numbers.
class TokenNames {
 public:
  /// Uses the tokens' numbers as names.
  TokenNames() = default;
  /// Uses the lines of a vocabulary such as BERT's vocab.txt as names. If lines are equal, they name the token of the first of them. Throws
  /// UserError naming `origin` if there are no lines or a line is not UTF-8.
  TokenNames(std::string_view lines, const std::string& origin);
  static TokenNames read(const std::string& path);

  bool are_numbers() const { return names_.empty(); }
  /// The number of names; 0 if tokens have no names, only numbers.
  std::int64_t size() const { return static_cast<std::int64_t>(names_.size()); }
  /// Returns a token's name. A token without a line, or whose line equals an earlier one, is named by its number in brackets: "[31000]".
  std::string name(std::int32_t token) const;
  /// Returns the token with this name or number.
  std::optional<std::int32_t> find(const std::string& name) const;
  /// Does the same as find(), but throws UserError "PLACE: there is no token X: did you mean Y?" if there is no such token.
  std::int32_t at(const std::string& name, const std::string& place) const;
  /// Returns the text of the vocabulary file, one name per line.
  std::string lines() const;

 private:
  bool has_own_line(std::int32_t token) const;

  std::vector<std::string> names_;                        // the lines
  std::unordered_map<std::string, std::int32_t> tokens_;  // the first token of each line
};

}  // namespace tessera::index
