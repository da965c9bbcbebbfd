#include "src/data/tokenizers/sentencepiece_model.h"

#include <cstddef>
#include <optional>

#include <sentencepiece_processor.h>

#include <tessera/base/error.h>

namespace tessera {
namespace {

// Field numbers in sentencepiece_model.proto.
constexpr std::uint64_t kTrainer = 2, kNormalizer = 3, kDenormalizer = 5, kCharacterMap = 2, kModelType = 3;

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

/// What the library's interface does not show of a model.
struct HiddenParts {
  std::string_view normalization;
  std::uint64_t model_type = 1;  // 1 unigram, 2 BPE
  bool sound = true;             // whether is_sound_map() is true for all character maps
};

HiddenParts read_hidden_parts(std::string_view model) {
  HiddenParts out;
  for (WireFields fields(model); fields.next();) {
    const bool rules = fields.number == kNormalizer || fields.number == kDenormalizer;
    for (WireFields inner(fields.bytes); (rules || fields.number == kTrainer) && inner.next();) {
      if (fields.number == kTrainer && inner.number == kModelType) out.model_type = inner.scalar;
      if (!rules || inner.number != kCharacterMap) continue;
      out.sound = out.sound && is_sound_map(inner.bytes);
      if (fields.number == kNormalizer) out.normalization = inner.bytes;
    }
  }
  return out;
}

}  // namespace

SentencePieceModel load_sentencepiece(const std::string& bytes, const std::string& origin) {
  const HiddenParts hidden = read_hidden_parts(bytes);
  const auto processor = std::make_shared<sentencepiece::SentencePieceProcessor>();
  if (!hidden.sound || !processor->LoadFromSerializedProto(bytes).ok() || processor->GetPieceSize() == 0)
    user_error(origin, ": is not a SentencePiece model, or damaged (", bytes.size(), " bytes)");
  return {processor, std::string(hidden.normalization), hidden.model_type == 1};
}

bool has_sound_normalization(std::string_view model) {
  return read_hidden_parts(model).sound;
}

}  // namespace tessera
