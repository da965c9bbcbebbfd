#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "src/data/tokenizers/json/added_tokens.h"
#include "src/data/tokenizers/json/model.h"
#include "src/data/tokenizers/json/normalizer.h"
#include "src/data/tokenizers/json/pre_tokenizer.h"

namespace tessera::json_tokenizer {

/// The special tokens before and after a text.
struct SpecialEnds {
  std::vector<std::int64_t> before, behind;
  std::size_t size() const { return before.size() + behind.size(); }
};

/// Returns the special tokens that the `post_processor` of a tokenizer.json adds to a single text. Throws UserError naming `origin` and the
/// post-processor's type if it is not supported.
SpecialEnds read_post_processor(const nlohmann::json& json, const std::string& origin);

/// Converts tokens back to text: changes the tokens in place, and may join them. The concatenation of the result is the text. Thread-safe.
using Decoder = std::function<void(std::vector<std::string>& tokens)>;

/// Reads the `decoder` of a tokenizer.json; if it is null, returns a decoder that puts spaces between tokens. Throws UserError
/// naming `origin` and the decoder's type if it is not supported.
Decoder make_decoder(const nlohmann::json& json, const std::string& origin);

/// Converts text to ids and ids to text by the rules of a tokenizer.json, like the `tokenizers` package. Thread-safe.
class Pipeline {
 public:
  /// `origin` is the file's name in errors. Throws UserError if the file is damaged or a part of it is not supported.
  Pipeline(const nlohmann::json& file, const std::string& origin);

  /// Returns the ids of a valid UTF-8 text, cut to at most `most` ids. The special tokens at the text's ends are included in this number
  /// and are not cut; if there are more of them than `most`, the last ones stay.
  std::vector<std::int64_t> encode(std::string_view text, std::size_t most) const;
  /// Returns all ids of the text, even if their number exceeds longest(), the file's maximum.
  std::vector<std::int64_t> encode_whole(std::string_view text) const;
  /// Returns the text of ids below size(), without special tokens.
  std::string decode(const std::vector<std::int64_t>& ids) const;

  /// Returns the largest id plus one.
  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }
  const SpecialEnds& ends() const { return ends_; }
  /// Returns the ids of the special tokens, ascending.
  const std::vector<std::int64_t>& special_ids() const { return special_ids_; }
  /// Returns the file's maximum number of ids for a text.
  std::size_t longest() const { return longest_; }

 private:
  void read_truncation(const nlohmann::json& truncation, const std::string& origin);
  static void check_padding(const nlohmann::json& padding, const std::string& origin);
  void read_names(const nlohmann::json& file, const Tokens& tokens);
  void keep(const std::string& token, std::int64_t id);
  std::vector<std::int64_t> encode_into(std::size_t room, std::string_view text) const;
  void encode_part(std::string_view text, std::size_t head, std::size_t limit, std::vector<std::int64_t>& ids) const;

  Normalizer normalizer_;
  Splitting splitting_;
  ModelPart model_;
  AddedTokens added_;
  SpecialEnds ends_;
  Decoder decoder_;
  std::string word_end_;  // the mark at the end of words; where decoder_ leaves it in the text, decode() replaces it by a space
  std::vector<std::string> tokens_;  // tokens by id
  std::vector<std::int64_t> special_ids_;
  std::size_t longest_;
  bool keeps_end_ = false;  // whether long texts lose ids at their start rather than their end
};

}  // namespace tessera::json_tokenizer
