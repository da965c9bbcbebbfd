#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera::json_tokenizer {

/// The bytes of a Base64 text (RFC 4648, with padding); none if it is no such text.
std::optional<std::string> from_base64(std::string_view text);

std::string to_base64(std::string_view bytes);

}  // namespace tessera::json_tokenizer
