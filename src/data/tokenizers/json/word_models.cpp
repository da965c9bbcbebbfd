// The models that look up words in the vocabulary: WordPiece and WordLevel.
#include <optional>

#include "src/data/tokenizers/json/byte_trie.h"
#include "src/data/tokenizers/json/characters.h"
#include "src/data/tokenizers/json/model.h"
#include <tessera/base/error.h>

namespace tessera::json_tokenizer {
namespace {

/// The token for words that the vocabulary lacks. The vocabulary need not have this token as long as no text needs it.
class Unknown {
 public:
  Unknown(const Tokens& tokens, std::string token, std::string origin) : id_(tokens.find(token)), token_(std::move(token)), origin_(std::move(origin)) {}
  std::int64_t id() const {
    if (id_ < 0) user_error(origin_, ": a word is not in its vocab, and neither is its unk_token");
    return id_;
  }

 private:
  std::int32_t id_;
  std::string token_, origin_;
};

class WordPiece : public Model {
 public:
  WordPiece(const Tokens& tokens, const std::string& prefix, std::size_t longest, Unknown unknown) : unknown_(std::move(unknown)), longest_(longest) {
    std::vector<std::pair<std::string, std::int32_t>> first, later;
    for (const auto& [token, id] : tokens.ids) {
      first.emplace_back(token, id);
      if (token.starts_with(prefix)) later.emplace_back(token.substr(prefix.size()), id);
    }
    first_ = ByteTrie(std::move(first));
    later_ = ByteTrie(std::move(later));
  }

  // Takes the longest token at each position, from left to right. The whole word becomes unknown if no token fits at a
  // position.
  void encode(std::string_view word, std::vector<std::int64_t>& out) const override {
    const std::size_t before = out.size();
    if (is_too_long(word)) return out.push_back(unknown_.id());
    for (std::size_t at = 0; at < word.size();) {
      const ByteTrie::Found found = (at == 0 ? first_ : later_).longest(word.substr(at));
      if (found.number == ByteTrie::none) {
        out.resize(before);
        return out.push_back(unknown_.id());
      }
      out.push_back(found.number);
      at += found.length;
    }
  }

 private:
  bool is_too_long(std::string_view word) const {
    if (word.size() <= longest_) return false;
    std::size_t characters = 0;
    for (const char c : word) characters += (static_cast<std::uint8_t>(c) & 0xC0) != 0x80 ? 1 : 0;
    return characters > longest_;
  }

  ByteTrie first_, later_;  // tokens at the start of a word; tokens later in a word, without their prefix
  Unknown unknown_;
  std::size_t longest_;
};

class WordLevel : public Model {
 public:
  WordLevel(const Tokens& tokens, Unknown unknown) : words_({tokens.ids.begin(), tokens.ids.end()}), unknown_(std::move(unknown)) {}
  void encode(std::string_view word, std::vector<std::int64_t>& out) const override {
    const std::int32_t id = words_.find(word);
    out.push_back(id == ByteTrie::none ? unknown_.id() : id);
  }

 private:
  ByteTrie words_;
  Unknown unknown_;
};

}  // namespace

ModelPart make_word_piece(const nlohmann::json& json, const std::string& origin) {
  allow_members(json, {"unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"}, origin);
  Tokens tokens = read_vocabulary(json, origin);
  const nlohmann::json longest = json.value("max_input_chars_per_word", nlohmann::json(100));
  if (!longest.is_number_unsigned()) user_error(origin, ": its model's max_input_chars_per_word is not a number");
  Unknown unknown(tokens, text_member(json, "unk_token", "[UNK]", origin), origin);
  auto model = std::make_shared<WordPiece>(tokens, text_member(json, "continuing_subword_prefix", "##", origin), longest.get<std::size_t>(), std::move(unknown));
  return {std::move(model), std::move(tokens)};
}

ModelPart make_word_level(const nlohmann::json& json, const std::string& origin) {
  allow_members(json, {"unk_token", "vocab"}, origin);
  Tokens tokens = read_vocabulary(json, origin);
  auto model = std::make_shared<WordLevel>(tokens, Unknown(tokens, text_member(json, "unk_token", "<unk>", origin), origin));
  return {std::move(model), std::move(tokens)};
}

}  // namespace tessera::json_tokenizer
