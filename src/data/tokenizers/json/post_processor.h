#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace tessera::json_tokenizer {

/// The special tokens before and after a text.
struct SpecialEnds {
  std::vector<std::int64_t> before, behind;
  std::size_t size() const { return before.size() + behind.size(); }
};

/// Returns the special tokens that the `post_processor` of a tokenizer.json adds to a single text. Throws UserError naming `origin` and the
/// post-processor's type if it is not supported.
SpecialEnds read_post_processor(const nlohmann::json& json, const std::string& origin);

}  // namespace tessera::json_tokenizer
