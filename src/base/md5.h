#pragma once

#include <string>
#include <string_view>

namespace tessera {

/// Returns the MD5 (RFC 1321) of the bytes as 32 lower-case hexadecimal digits. It detects damage, but not forgery.
std::string md5(std::string_view bytes);

}  // namespace tessera
