#pragma once

#include <string>
#include <string_view>

namespace tessera {

/// Text out of a file as part of a message's one line: control characters escaped ("\n", "\u0007"), bytes that are not UTF-8
/// as U+FFFD, and what is longer than `longest` bytes cut, with "..." behind it.
std::string printable(std::string_view text, std::size_t longest = 200);

}  // namespace tessera
