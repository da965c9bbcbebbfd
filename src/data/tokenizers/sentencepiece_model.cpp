#include "src/data/tokenizers/sentencepiece_model.h"

#include <bit>
#include <cstddef>

#include <tessera/base/text.h>

namespace tessera {
namespace {

// Field numbers in sentencepiece_model.proto.
constexpr std::uint64_t kPiece = 1, kTrainer = 2, kNormalizer = 3, kDenormalizer = 5, kCharacterMap = 2;

std::uint32_t little_endian(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i)
    value |= std::uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return value;
}

/// Reads the fields of a message in the wire format of Protocol Buffers, one after the other.
class WireFields {
 public:
  explicit WireFields(std::string_view message) : rest_(message) {}

  /// Advances to the next field. Returns false at the end, or if the message is damaged.
  bool next() {
    const std::optional<std::uint64_t> tag = rest_.empty() ? std::nullopt : varint();
    if (!tag) return false;
    number = *tag >> 3;
    bytes = {};
    switch (*tag & 7) {
      case 0: {
        const std::optional<std::uint64_t> read = varint();
        scalar = read.value_or(0);
        return read.has_value();
      }
      case 1: return take(8);
      case 2: {
        const std::optional<std::uint64_t> size = varint();
        return size && take(*size);
      }
      case 5: return take(4);
      default: return false;
    }
  }

  bool at_end() const { return rest_.empty(); }

  std::uint64_t number = 0;
  std::uint64_t scalar = 0;  // the value of a varint field
  std::string_view bytes;    // the content of a field that is not a varint

 private:
  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_[0]);
      rest_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  bool take(std::uint64_t count) {
    if (count > rest_.size()) return false;
    bytes = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return true;
  }

  std::string_view rest_;
};

// Checks a character map. It consists of the size of the trie, the trie, and zero-terminated texts that the trie's values point to. A
// node's child for a byte is at the node's position XOR the node's offset XOR the byte.
bool is_sound_map(std::string_view map) {
  if (map.empty()) return true;  // nothing is normalized
  if (map.size() < 4) return false;
  const std::size_t trie_size = little_endian(map, 0);
  map.remove_prefix(4);
  if (trie_size == 0 || trie_size % 4 != 0 || trie_size >= map.size() || map.back() != '\0') return false;
  const std::size_t units = trie_size / 4, texts = map.size() - trie_size;
  const auto unit = [&](std::size_t at) { return TrieUnit{little_endian(map, 4 * at)}; };
  for (std::size_t at = 0; at < units; ++at) {
    const TrieUnit node = unit(at);
    if (at > 0 && node.is_value()) continue;
    const std::uint64_t children = at ^ node.offset();
    if ((children | 0xFF) >= units) return false;
    if (node.has_value() && unit(children).value() >= texts) return false;
  }
  return true;
}

SentencePieceParts::Piece read_piece(std::string_view message) {
  SentencePieceParts::Piece out;
  for (WireFields fields(message); fields.next();) {
    if (fields.number == 1) out.text = fields.bytes;
    if (fields.number == 2 && fields.bytes.size() == 4) out.score = std::bit_cast<float>(little_endian(fields.bytes, 0));
    if (fields.number == 3) out.type = fields.scalar;
  }
  return out;
}

}  // namespace

std::optional<SentencePieceParts> read_sentencepiece(std::string_view model) {
  constexpr std::uint64_t model_type = 3;
  SentencePieceParts out;
  WireFields fields(model);
  while (fields.next()) {
    if (fields.number == kPiece) {
      out.pieces.push_back(read_piece(fields.bytes));
      if (!is_utf8(out.pieces.back().text)) return std::nullopt;
    }
    for (WireFields inner(fields.bytes); (fields.number == kNormalizer || fields.number == kTrainer) && inner.next();) {
      if (fields.number == kNormalizer && inner.number == kCharacterMap) out.normalization = inner.bytes;
      if (fields.number == kTrainer && inner.number == model_type) out.model_type = inner.scalar;
    }
  }
  if (out.pieces.empty() || !fields.at_end()) return std::nullopt;
  return out;
}

bool has_sound_normalization(std::string_view model) {
  for (WireFields fields(model); fields.next();) {
    if (fields.number != kNormalizer && fields.number != kDenormalizer) continue;
    for (WireFields inner(fields.bytes); inner.next();)
      if (inner.number == kCharacterMap && !is_sound_map(inner.bytes)) return false;
  }
  return true;
}

}  // namespace tessera
