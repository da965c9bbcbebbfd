#pragma once

#include <string>
#include <string_view>

namespace tessera {

/// Makes untrusted text safe for a one-line message: escapes control characters ("\n", "\u0007"), replaces bytes that are not
/// UTF-8 by U+FFFD, and cuts text longer than `longest` bytes, ending it in "...".
std::string printable(std::string_view text, std::size_t longest = 200);

}  // namespace tessera
