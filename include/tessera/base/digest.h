#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

/// SHA-256 (FIPS 180-4) of the bytes, as 64 lower-case hexadecimal digits.
std::string sha256(std::string_view bytes);

/// A number that differs between texts that differ, but for chance; equal on all machines. Fast, not for secrets.
std::uint64_t fingerprint(std::string_view bytes, std::uint64_t seed = 0);

/// Cyclic redundancy checks of 32 bits, reflected: CRC-32 (PNG, zip) and CRC-32C (Castagnoli; TFRecord).
std::uint32_t crc32(std::string_view bytes);
std::uint32_t crc32c(std::string_view bytes);

/// Base64 (RFC 4648, with padding, no line breaks).
std::string base64_encode(std::string_view bytes);

/// Throws UserError if the text is not base64.
std::string base64_decode(std::string_view text);

}  // namespace tessera
