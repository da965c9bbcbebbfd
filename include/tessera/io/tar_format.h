#pragma once
// What the reader and the writer of tar archives share.

#include <cstddef>

namespace tessera::io {

inline constexpr std::size_t kBlock = 512;  // headers and data come in blocks of this size (POSIX.1-1988, ustar)

}  // namespace tessera::io
