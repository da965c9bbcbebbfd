#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

/// Returns the last one or two blocks of 64 bytes that MD5 (RFC 1321, section 3.1) and SHA-256 (FIPS 180-4, section 5.1) process: the bytes
/// after the last whole block, a bit 1, zeros, and the number of bits, which SHA-256 writes with the most significant byte first.
inline std::string last_blocks(std::string_view bytes, bool most_significant_first) {
  std::string out(bytes.substr(bytes.size() / 64 * 64));
  out += '\x80';
  while (out.size() % 64 != 56) out += '\0';
  const std::uint64_t bits = static_cast<std::uint64_t>(bytes.size()) * 8;
  for (int shift = 0; shift < 64; shift += 8) out += static_cast<char>(bits >> (most_significant_first ? 56 - shift : shift) & 0xff);
  return out;
}

}  // namespace tessera
