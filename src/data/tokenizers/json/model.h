#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <nlohmann/json.hpp>

namespace tessera::json_tokenizer {

/// A tokenizer.json's `model`: converts pieces to ids. Thread-safe.
class Model {
 public:
  virtual ~Model() = default;
  /// Appends the ids of one piece, which must not be empty.
  virtual void encode(std::string_view piece, std::vector<std::int64_t>& out) const = 0;
};

/// The tokens of a model, as written in its file.
struct Tokens {
  std::unordered_map<std::string, std::int32_t> ids;
  std::size_t count = 0;  // number of entries in the vocabulary

  std::int32_t find(const std::string& token) const {
    const auto found = ids.find(token);
    return found == ids.end() ? -1 : found->second;
  }
};

struct ModelPart {
  std::shared_ptr<const Model> model;
  Tokens tokens;
};

/// Reads the file's `model`: BPE, WordPiece, Unigram or WordLevel. If `bytes` is true, pieces are raw bytes, and the file writes each byte
/// b of a token as character_of_byte(b). `bytes` may be true only if reads_bytes() returns true. Throws UserError naming `origin` if the
/// model is damaged or not supported.
ModelPart make_model(const nlohmann::json& json, bool bytes, const std::string& origin);

/// Returns whether the model's pieces may be raw bytes.
bool reads_bytes(const nlohmann::json& json);

/// Each of these functions reads one type of `model`. `json` must be an object.
ModelPart make_bpe(const nlohmann::json& json, bool bytes, const std::string& origin);
ModelPart make_word_piece(const nlohmann::json& json, const std::string& origin);
ModelPart make_unigram(const nlohmann::json& json, const std::string& origin);
ModelPart make_word_level(const nlohmann::json& json, const std::string& origin);

/// Reads the model's `vocab`, an object that maps tokens to ids.
Tokens read_vocabulary(const nlohmann::json& model, const std::string& origin);
/// Returns the name of the token that represents a byte, such as <0x0A>. Such tokens spell characters that the vocabulary lacks.
std::string byte_token(std::uint8_t byte);
/// Throws UserError if the model has members that are not in `keys`.
void allow_members(const nlohmann::json& model, std::initializer_list<std::string_view> keys, const std::string& origin);
/// text_member() reads a text, or returns `otherwise` if the member is missing or null. flag_member() reads true or false, or returns false
/// if the member is missing or null.
std::string text_member(const nlohmann::json& model, const char* key, const std::string& otherwise, const std::string& origin);
bool flag_member(const nlohmann::json& model, const char* key, const std::string& origin);

}  // namespace tessera::json_tokenizer
