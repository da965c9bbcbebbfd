#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera {

/// Reads numbers from a file that may be truncated; bytes beyond its end read as 0.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes, bool big_endian = false) : bytes_(bytes), big_endian_(big_endian) {}

  std::size_t size() const { return bytes_.size(); }
  std::uint8_t byte(std::size_t at) const {
    return at < bytes_.size() ? static_cast<std::uint8_t>(bytes_[at]) : std::uint8_t{0};
  }
  std::uint64_t number(std::size_t at, std::size_t count) const {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < count; ++i) value = value << 8 | byte(at + (big_endian_ ? i : count - 1 - i));
    return value;
  }
  std::uint32_t u16(std::size_t at) const { return static_cast<std::uint32_t>(number(at, 2)); }
  std::uint32_t u32(std::size_t at) const { return static_cast<std::uint32_t>(number(at, 4)); }

 private:
  std::string_view bytes_;
  bool big_endian_;
};

}  // namespace tessera
