#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera::io {

/// Reads the fields of a message in the wire format of Protocol Buffers, one after the other.
class WireFields {
 public:
  enum Type : std::uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  explicit WireFields(std::string_view message) : rest_(message) {}

  /// Advances to the next field. Returns false at the end, or if the message is damaged.
  bool next() {
    if (rest_.empty()) return false;
    const std::uint64_t tag = varint();
    number = tag >> 3;
    type = static_cast<Type>(tag & 7);
    scalar = type == kVarint ? varint() : 0;
    bytes = type == kBytes ? take(varint()) : take(type == kFixed64 ? 8 : type == kFixed32 ? 4 : 0);
    damaged = damaged || (type != kVarint && type != kFixed64 && type != kBytes && type != kFixed32);
    return !damaged;
  }
  /// Returns the next message of a file in which each message is preceded by its length.
  std::string_view delimited() { return take(varint()); }
  bool at_end() const { return rest_.empty(); }

  std::uint64_t number = 0;
  Type type = kVarint;
  std::uint64_t scalar = 0;  // the value of a varint field
  std::string_view bytes;    // the content of a field that is not a varint
  bool damaged = false;

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_[0]);
      rest_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
    damaged = true;
    return 0;
  }
  std::string_view take(std::uint64_t count) {
    damaged = damaged || count > rest_.size();
    if (damaged) return {};
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  std::string_view rest_;
};

}  // namespace tessera::io
