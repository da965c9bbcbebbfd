#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

/// Returns the SHA-256 (FIPS 180-4) of the bytes as 64 lower-case hexadecimal digits.
std::string sha256(std::string_view bytes);

/// Returns a fast 64-bit hash that is equal on all machines. It is not cryptographic.
std::uint64_t fingerprint(std::string_view bytes, std::uint64_t seed = 0);

/// Returns a number as 16 lower-case hexadecimal digits.
std::string hexadecimal(std::uint64_t number);

/// These functions return a reflected 32-bit cyclic redundancy check. crc32() is the CRC-32 of PNG and zip files; crc32c() is the CRC-32C
/// (Castagnoli) of TFRecord files.
std::uint32_t crc32(std::string_view bytes);
std::uint32_t crc32c(std::string_view bytes);

/// Encodes as base64 (RFC 4648, with padding, no line breaks).
std::string base64_encode(std::string_view bytes);

/// Decodes base64. Throws UserError if the text is not base64.
std::string base64_decode(std::string_view text);

}  // namespace tessera
