#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera::index {

/// What tokens are called in files and on the command line: the lines of a vocabulary file, or their numbers.
class TokenNames {
 public:
  /// Numbers.
  TokenNames() = default;
  /// The lines of a vocabulary such as BERT's vocab.txt; of equal lines the first counts. Throws UserError naming the
  /// `origin`: no line, a line that is not UTF-8.
  TokenNames(std::string_view lines, const std::string& origin);
  static TokenNames read(const std::string& path);

  bool are_numbers() const { return names_.empty(); }
  /// Number of names; 0 where tokens are numbers.
  std::int64_t size() const { return static_cast<std::int64_t>(names_.size()); }
  /// A token that has no name is called by its number in brackets: "[31000]".
  std::string name(std::int32_t token) const;
  /// The token of that name or number.
  std::optional<std::int32_t> find(const std::string& name) const;
  /// Throws UserError "PLACE: there is no token X: did you mean Y?".
  std::int32_t at(const std::string& name, const std::string& place) const;
  /// The file's text, one name a line.
  std::string lines() const;

 private:
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::int32_t> tokens_;
};

}  // namespace tessera::index
