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

/// A token that is looked for in the text before a model sees it.
struct AddedToken {
  std::string content;
  std::int32_t id;
  bool special, single_word, lstrip, rstrip;
  bool normalized;  // looked for in normalized text
};

/// Part of a text: an added token, or what lies between them.
struct AddedPart {
  std::size_t begin, end;
  std::int32_t id;  // of the token; -1: none
};

/// The file's `added_tokens`. Thread-safe.
class AddedTokens {
 public:
  /// Tokens that the model has keep its id, the others get those behind its vocabulary. Throws UserError naming `origin`.
  AddedTokens(const nlohmann::json& json, const Tokens& tokens, const Normalizer& normalizer, const std::string& origin);

  const std::vector<AddedToken>& list() const { return tokens_; }
  /// Appends the parts of a text from left to right; nothing for an empty one. `normalized` says which tokens are looked for.
  void find(std::string_view text, bool normalized, std::vector<AddedPart>& out) const;

 private:
  /// Tokens to look for: the one that begins first, the longest of those.
  struct Matcher {
    ByteTrie trie;  // numbers of tokens_
    std::vector<bool> first = std::vector<bool>(256);
    std::string firsts;  // the bytes that any of them begins with
  };
  void keep(AddedToken token);
  void build(const Normalizer& normalizer);
  bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) const;

  std::vector<AddedToken> tokens_;
  Matcher plain_, normalized_;
};

}  // namespace tessera::json_tokenizer
