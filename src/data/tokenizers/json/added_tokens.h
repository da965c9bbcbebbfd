#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "src/data/tokenizers/json/byte_trie.h"
#include "src/data/tokenizers/json/model.h"
#include "src/data/tokenizers/json/normalizer.h"

namespace tessera::json_tokenizer {

/// A token that is searched in the text before the model sees it.
struct AddedToken {
  std::string content;
  std::int32_t id;
  bool special, single_word, lstrip, rstrip;
  bool normalized;  // searched in normalized text
};

/// A part of a text: an added token, or the text between two of them.
struct AddedPart {
  std::size_t begin, end;
  std::int32_t id;  // of the token; -1: none
};

/// The file's `added_tokens`. Thread-safe.
class AddedTokens {
 public:
  /// Tokens in the model's vocabulary keep their ids; the others get ids after the vocabulary. Throws UserError naming `origin`.
  AddedTokens(const nlohmann::json& json, const Tokens& tokens, const Normalizer& normalizer, const std::string& origin);

  const std::vector<AddedToken>& list() const { return tokens_; }
  /// Appends the parts of a text from left to right; none for an empty text. `normalized` selects which tokens are searched.
  void find(std::string_view text, bool normalized, std::vector<AddedPart>& out) const;

 private:
  /// Finds the token that starts first; of several there, the longest.
  struct Matcher {
    ByteTrie trie;  // contents to indices in tokens_
    std::vector<bool> first = std::vector<bool>(256);
    std::string firsts;  // the first bytes of all tokens
  };
  void keep(AddedToken token);
  void build(const Normalizer& normalizer);
  bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) const;

  std::vector<AddedToken> tokens_;
  Matcher plain_, normalized_;
};

}  // namespace tessera::json_tokenizer
