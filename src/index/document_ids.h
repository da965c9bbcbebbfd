#pragma once

#include <string>
#include <string_view>

namespace tessera::index {

/// Whether the text is UTF-8 without control characters.
bool is_readable(std::string_view text);

/// Throws UserError with a message that begins with `place` if a text cannot be a document's id, because it is empty or not readable.
void check_id(std::string_view id, const std::string& place);

}  // namespace tessera::index
