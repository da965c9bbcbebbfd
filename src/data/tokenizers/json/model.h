#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <nlohmann/json.hpp>

namespace tessera::json_tokenizer {

/// What makes ids of pieces: a tokenizer.json's `model`. Thread-safe.
class Model {
 public:
  virtual ~Model() = default;
  /// Appends the ids of one piece, which is not empty.
  virtual void encode(std::string_view piece, std::vector<std::int64_t>& out) const = 0;
};

/// The tokens of a model, as its file has them.
struct Tokens {
  std::unordered_map<std::string, std::int32_t> ids;
  std::size_t count = 0;  // of the vocabulary's entries

  std::int32_t find(const std::string& token) const {
    const auto found = ids.find(token);
    return found == ids.end() ? -1 : found->second;
  }
};

struct ModelPart {
  std::shared_ptr<const Model> model;
  Tokens tokens;
};

/// Reads the file's `model`: BPE, WordPiece, Unigram or WordLevel. With `bytes`, where reads_bytes(), pieces are bytes, for which its tokens have
/// the characters of byte-level tokenizers. Throws UserError naming `origin` for a damaged model and for what is not known
/// here.
ModelPart make_model(const nlohmann::json& json, bool bytes, const std::string& origin);

/// Whether the model's pieces may be bytes.
bool reads_bytes(const nlohmann::json& json);

/// Those by type; `json` is an object.
ModelPart make_bpe(const nlohmann::json& json, bool bytes, const std::string& origin);
ModelPart make_word_piece(const nlohmann::json& json, const std::string& origin);
ModelPart make_unigram(const nlohmann::json& json, const std::string& origin);
ModelPart make_word_level(const nlohmann::json& json, const std::string& origin);

/// A `vocab` that is an object: token to id.
Tokens read_vocabulary(const nlohmann::json& model, const std::string& origin);
/// The token for a byte that a vocabulary lacks: <0x0A>.
std::string byte_token(std::uint8_t byte);
/// Throws unless the model has no other members than these.
void allow_members(const nlohmann::json& model, std::initializer_list<std::string_view> keys, const std::string& origin);
/// A member that is a text, true or false, or missing or null.
std::string text_member(const nlohmann::json& model, const char* key, const std::string& otherwise, const std::string& origin);
bool flag_member(const nlohmann::json& model, const char* key, const std::string& origin);

}  // namespace tessera::json_tokenizer
