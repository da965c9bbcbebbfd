#include "src/data/tokenizers/sentencepiece_model.h"

#include <cstddef>

#include <sentencepiece_processor.h>

#include "src/io/wire_fields.h"
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
  for (io::WireFields fields(model); fields.next();) {
    const bool rules = fields.number == kNormalizer || fields.number == kDenormalizer;
    for (io::WireFields inner(fields.bytes); (rules || fields.number == kTrainer) && inner.next();) {
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
