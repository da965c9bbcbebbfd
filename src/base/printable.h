#pragma once

#include <string>
#include <string_view>

namespace tessera {

/// Makes untrusted text safe for a one-line message. Replaces control characters by escapes such as \n and \u0007, replaces bytes that are
/// not UTF-8 by U+FFFD, and cuts text longer than `longest` bytes; cut text ends in "...".
std::string printable(std::string_view text, std::size_t longest = 200);

}  // namespace tessera
