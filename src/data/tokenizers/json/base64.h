#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera::json_tokenizer {

/// Decodes a Base64 text (RFC 4648, with padding); returns nullopt if it is not valid Base64.
std::optional<std::string> from_base64(std::string_view text);

std::string to_base64(std::string_view bytes);

}  // namespace tessera::json_tokenizer
