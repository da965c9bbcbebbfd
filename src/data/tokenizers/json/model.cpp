#include "src/data/tokenizers/json/model.h"

#include <memory>
#include <utility>

#include "src/data/tokenizers/json/byte_trie.h"
#include "src/data/tokenizers/json/part.h"
#include <tessera/base/error.h>

namespace tessera::json_tokenizer {

std::string byte_token(std::uint8_t byte) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  return std::string("<0x") + digits[byte >> 4] + digits[byte & 15] + ">";
}

Tokens read_vocabulary(const nlohmann::json& model, const std::string& origin) {
  constexpr std::int64_t most = 1 << 24;
  if (!model.contains("vocab") || !model.at("vocab").is_object()) user_error(origin, ": its model has no vocab: the file is damaged");
  Tokens out;
  out.ids.reserve(model.at("vocab").size());
  for (const auto& [token, id] : model.at("vocab").items()) {
    if (!id.is_number_integer()) user_error(origin, ": the id of the token ", shown(token), " is not a number");
    const auto value = id.get<std::int64_t>();
    if (value < 0 || value >= most) user_error(origin, ": the token ", shown(token), " has the id ", value);
    out.ids.emplace(token, static_cast<std::int32_t>(value));
  }
  out.count = out.ids.size();
  return out;
}

namespace {

/// The token for words that the vocabulary lacks. The vocabulary need not have this token as long as no text needs it.
class Unknown {
 public:
  Unknown(const Tokens& tokens, const std::string& token, std::string origin) : id_(tokens.find(token)), origin_(std::move(origin)) {}
  std::int64_t id() const {
    if (id_ < 0) user_error(origin_, ": a word is not in its vocab, and neither is its unk_token");
    return id_;
  }

 private:
  std::int32_t id_;
  std::string origin_;
};

class WordPiece {
 public:
  WordPiece(const Tokens& tokens, const std::string& prefix, std::size_t longest, Unknown unknown)
      : unknown_(std::move(unknown)), longest_(longest) {
    ByteTrie::Texts first, later;
    for (const auto& [token, id] : tokens.ids) {
      first.emplace_back(token, id);
      if (token.starts_with(prefix)) later.emplace_back(token.substr(prefix.size()), id);
    }
    first_ = ByteTrie(std::move(first));
    later_ = ByteTrie(std::move(later));
  }

  // Takes the longest token at each position, from left to right. The whole word becomes unknown if no token fits at a position.
  void append(std::string_view word, std::vector<std::int64_t>& out) const {
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

ModelPart make_word_piece(const nlohmann::json& model, const std::string& origin) {
  const Part part(model, "model", origin);
  part.allow({"unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
  Tokens tokens = read_vocabulary(model, origin);
  const nlohmann::json longest = model.value("max_input_chars_per_word", nlohmann::json(100));
  if (!longest.is_number_unsigned()) user_error(origin, ": its model's max_input_chars_per_word is not a number");
  Unknown unknown(tokens, part.text("unk_token", "[UNK]"), origin);
  const auto rules = std::make_shared<const WordPiece>(tokens, part.text("continuing_subword_prefix", "##"), longest.get<std::size_t>(),
                                                       std::move(unknown));
  return {[rules](std::string_view word, std::vector<std::int64_t>& out) { rules->append(word, out); }, std::move(tokens)};
}

ModelPart make_word_level(const nlohmann::json& model, const std::string& origin) {
  const Part part(model, "model", origin);
  part.allow({"unk_token", "vocab"});
  Tokens tokens = read_vocabulary(model, origin);
  const auto words = std::make_shared<const ByteTrie>(ByteTrie::Texts(tokens.ids.begin(), tokens.ids.end()));
  const Unknown unknown(tokens, part.text("unk_token", "<unk>"), origin);
  return {[=](std::string_view word, std::vector<std::int64_t>& out) {
            const std::int32_t id = words->find(word);
            out.push_back(id == ByteTrie::none ? unknown.id() : id);
          },
          std::move(tokens)};
}

}  // namespace

bool reads_bytes(const nlohmann::json& json) {
  return json.is_object() && (json.contains("type") ? json.at("type") == "BPE" : json.contains("merges"));
}

ModelPart make_model(const nlohmann::json& json, bool bytes, const std::string& origin) {
  if (!json.is_object()) user_error(origin, ": has no model, so it is not a tokenizer.json");
  const char* const guessed = json.contains("merges")                     ? "BPE"  // files of old versions do not name the type
                              : json.contains("max_input_chars_per_word") ? "WordPiece"
                              : json.contains("vocab") && json.at("vocab").is_array() ? "Unigram" : "WordLevel";
  const std::string type = json.contains("type") ? Part(json, "model", origin).text("type", "") : guessed;
  if (type == "BPE") return make_bpe(json, bytes, origin);
  if (type == "WordPiece") return make_word_piece(json, origin);
  if (type == "Unigram") return make_unigram(json, origin);
  if (type == "WordLevel") return make_word_level(json, origin);
  user_error(origin, ": its model ", shown(type), " is not supported (docs/pretrained.md)");
}

}  // namespace tessera::json_tokenizer
