#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <nlohmann/json.hpp>

namespace tessera::json_tokenizer {

/// A tokenizer.json's `model`: appends the ids of one piece, which must not be empty. Thread-safe.
using Model = std::function<void(std::string_view piece, std::vector<std::int64_t>& out)>;

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
  Model encode;
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
ModelPart make_unigram(const nlohmann::json& json, const std::string& origin);

/// Reads the model's `vocab`, an object that maps tokens to ids.
Tokens read_vocabulary(const nlohmann::json& model, const std::string& origin);
/// Returns the name of the token that represents a byte, such as <0x0A>. Such tokens spell characters that the vocabulary lacks.
std::string byte_token(std::uint8_t byte);

}  // namespace tessera::json_tokenizer
