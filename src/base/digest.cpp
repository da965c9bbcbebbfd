#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "src/base/digest.h"
#include "src/base/hash_padding.h"
#include <tessera/base/error.h>
#include <tessera/base/random.h>

namespace tessera {
namespace {

constexpr std::array<std::uint32_t, 64> round_constants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using State = std::array<std::uint32_t, 8>;

std::uint8_t byte_at(std::string_view bytes, std::size_t i) {
  return static_cast<std::uint8_t>(bytes[i]);
}

void compress(State& state, std::string_view block) {
  std::array<std::uint32_t, 64> w{};
  for (std::size_t i = 0; i < 16; ++i)
    for (std::size_t j = 0; j < 4; ++j) w[i] = w[i] << 8 | byte_at(block, 4 * i + j);
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t low = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
    const std::uint32_t high = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + low + w[i - 7] + high;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t choice = (e & f) ^ (~e & g);
    const std::uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
    const std::uint32_t first =
        h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + choice + round_constants[i] + w[i];
    const std::uint32_t second = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + majority;
    h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
  }
  const State mixed = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state[i] += mixed[i];
}

constexpr std::string_view base64_digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

using CrcTables = std::array<std::array<std::uint32_t, 256>, 8>;

/// tables[k][b] is the contribution of byte b to the remainder when k more bytes follow it.
constexpr CrcTables crc_tables(std::uint32_t polynomial) {
  CrcTables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? polynomial : 0U);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = tables[k - 1][byte] >> 8 ^ tables[0][tables[k - 1][byte] & 0xFF];
  return tables;
}

constexpr CrcTables kZipTables = crc_tables(0xEDB88320U), kCastagnoliTables = crc_tables(0x82F63B78U);

/// Processes eight bytes at a time (Kounavis and Berry 2005).
std::uint32_t reflected_crc(std::string_view bytes, const CrcTables& tables) {
  std::uint32_t crc = 0xFFFFFFFFU;
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    std::uint32_t next = 0;
    for (std::size_t k = 0; k < 8; ++k) {
      const std::uint32_t mixed = k < 4 ? crc >> (8 * k) & 0xFF : 0;
      next ^= tables[7 - k][mixed ^ byte_at(bytes, i + k)];
    }
    crc = next;
  }
  for (; i < bytes.size(); ++i) crc = crc >> 8 ^ tables[0][(crc ^ byte_at(bytes, i)) & 0xFF];
  return ~crc;
}

}  // namespace

std::uint32_t crc32(std::string_view bytes) {
  return reflected_crc(bytes, kZipTables);
}

// Processes eight bytes at a time. The length is mixed in too, so that trailing zeros change the result.
std::uint64_t fingerprint(std::string_view bytes, std::uint64_t seed) {
  std::uint64_t hash = spread_bits(spread_bits(seed) ^ bytes.size());
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    std::uint64_t word = 0;
    for (std::size_t k = 0; k < std::min<std::size_t>(8, bytes.size() - i); ++k)
      word |= std::uint64_t{static_cast<unsigned char>(bytes[i + k])} << (8 * k);
    hash = spread_bits(hash ^ word);
  }
  return hash;
}

std::string hexadecimal(std::uint64_t number) {
  std::string digits;
  for (int shift = 60; shift >= 0; shift -= 4) digits += "0123456789abcdef"[number >> shift & 0xf];
  return digits;
}

std::uint32_t crc32c(std::string_view bytes) {
  return reflected_crc(bytes, kCastagnoliTables);
}

std::string sha256(std::string_view bytes) {
  State state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const std::string tail = last_blocks(bytes, /*most_significant_first=*/true);
  for (std::size_t i = 0; i + 64 <= bytes.size(); i += 64) compress(state, bytes.substr(i, 64));
  for (std::size_t i = 0; i < tail.size(); i += 64) compress(state, std::string_view(tail).substr(i, 64));
  std::string text;
  for (const std::uint32_t word : state)
    for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[word >> shift & 0xf];
  return text;
}

std::string base64_encode(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j) group = group << 8 | (j < count ? byte_at(bytes, i + j) : 0U);
    for (std::size_t j = 0; j < 4; ++j) text += j <= count ? base64_digits[group >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

std::string base64_decode(std::string_view text) {
  std::array<int, 256> values{};
  values.fill(-1);
  for (std::size_t i = 0; i < base64_digits.size(); ++i) values[byte_at(base64_digits, i)] = static_cast<int>(i);
  if (text.size() % 4 != 0) user_error("not base64: ", text.size(), " characters, expected a multiple of 4");
  std::size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::uint32_t group = 0;
    for (std::size_t j = i; j < i + 4; ++j) {
      const bool pad = j >= text.size() - padding;
      const int value = pad ? 0 : values[byte_at(text, j)];
      if (value < 0) user_error("not base64: unexpected character at position ", j);
      group = group << 6 | static_cast<std::uint32_t>(value);
    }
    for (int shift = 16; shift >= 0; shift -= 8) bytes += static_cast<char>(group >> shift & 0xff);
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

}  // namespace tessera
