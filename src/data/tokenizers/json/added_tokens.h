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

/// A token that is split off from the text before the tokenizer's model (BPE, Unigram, ...) encodes the rest.
struct AddedToken {
  std::string content;
  std::int32_t id;
  bool special, single_word, lstrip, rstrip;
  bool normalized;  // whether the token is searched for in the normalized text instead of the original text
  bool whole_piece;  // whether only a piece of the split text can be the token; an extension that our presets use
};

/// A part of a text: an added token, or the text between two of them.
struct AddedPart {
  std::size_t begin, end;
  std::int32_t id;  // id of the token; -1: not a token
};

/// The file's `added_tokens`. Thread-safe.
class AddedTokens {
 public:
  /// Added tokens in the model's vocabulary keep their ids; the others get ids after the vocabulary. Throws UserError naming
  /// `origin` if the list is malformed.
  AddedTokens(const nlohmann::json& json, const Tokens& tokens, const Normalizer& normalizer, const std::string& origin);

  const std::vector<AddedToken>& list() const { return tokens_; }
  /// Appends the parts of a text from left to right; an empty text has no parts. Only tokens whose `normalized` has the given
  /// value are searched for.
  void find(std::string_view text, bool normalized, std::vector<AddedPart>& out) const;
  /// Returns the id of the token that a piece of the split text is, or -1.
  std::int32_t find_piece(std::string_view piece) const { return pieces_.find(piece); }

 private:
  /// Finds the token that starts first. If several start there, finds the longest.
  struct Matcher {
    ByteTrie trie;  // maps contents to indices in tokens_
    std::vector<bool> first = std::vector<bool>(256);
    std::string firsts;  // each byte with which a token starts
  };
  void build(const Normalizer& normalizer);
  bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) const;

  std::vector<AddedToken> tokens_;
  Matcher plain_, normalized_;
  ByteTrie pieces_;  // ids of the tokens that are whole pieces
};

}  // namespace tessera::json_tokenizer
