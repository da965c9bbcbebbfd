#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace tessera::json_tokenizer {

/// The special tokens before and behind a text.
struct SpecialEnds {
  std::vector<std::int64_t> before, behind;
  std::size_t size() const { return before.size() + behind.size(); }
};

/// Reads the file's `post_processor` for single texts. Throws UserError naming `origin` and the type, for what is not known
/// here.
SpecialEnds read_post_processor(const nlohmann::json& json, const std::string& origin);

}  // namespace tessera::json_tokenizer
