#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "src/data/tokenizers/json/added_tokens.h"
#include "src/data/tokenizers/json/decoder.h"
#include "src/data/tokenizers/json/model.h"
#include "src/data/tokenizers/json/normalizer.h"
#include "src/data/tokenizers/json/post_processor.h"
#include "src/data/tokenizers/json/pre_tokenizer.h"

namespace tessera::json_tokenizer {

/// A tokenizer.json: text to ids and back, as the `tokenizers` package does it. Thread-safe.
class Pipeline {
 public:
  /// `origin` is what errors call the file. Throws UserError for a damaged file and for each part that is not known here.
  Pipeline(const nlohmann::json& file, const std::string& origin);

  /// The ids of a valid UTF-8 text, at most `most` of them, the special tokens at its ends included; those are always whole.
  std::vector<std::int64_t> encode(std::string_view text, std::size_t most) const;
  /// The same without a limit, the file's own included.
  std::vector<std::int64_t> encode_whole(std::string_view text) const;
  /// The text of ids below size(), without special tokens.
  std::string decode(const std::vector<std::int64_t>& ids) const;

  /// One more than the largest id.
  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }
  const SpecialEnds& ends() const { return ends_; }
  /// Ids of the special tokens, ascending.
  const std::vector<std::int64_t>& special_ids() const { return special_ids_; }
  /// What the file says about padding; none: nothing.
  std::optional<std::int64_t> pad_id() const { return pad_id_; }
  /// Most ids that the file lets a text have.
  std::size_t longest() const { return longest_; }

 private:
  void read_truncation(const nlohmann::json& truncation, const std::string& origin);
  void read_padding(const nlohmann::json& padding, const std::string& origin);
  void read_names(const nlohmann::json& file, const Tokens& tokens);
  void keep(const std::string& token, std::int64_t id);
  std::vector<std::int64_t> encode_into(std::size_t room, std::string_view text) const;
  void encode_part(std::string_view text, std::size_t head, std::size_t limit, std::vector<std::int64_t>& ids) const;

  std::shared_ptr<const Normalizer> normalizer_;
  Splitting splitting_;
  ModelPart model_;
  AddedTokens added_;
  SpecialEnds ends_;
  std::shared_ptr<const Decoder> decoder_;
  std::string word_end_;  // the mark at the end of words, which decoders leave
  std::vector<std::string> tokens_;  // by id
  std::vector<std::int64_t> special_ids_;
  std::optional<std::int64_t> pad_id_;
  std::size_t longest_;
  bool keeps_end_ = false;  // too long texts lose their beginning
};

}  // namespace tessera::json_tokenizer
