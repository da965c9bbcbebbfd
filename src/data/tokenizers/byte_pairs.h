#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera {

/// CLIP's byte-pair encoding: 256 bytes, the same at the end of a word, one id per merge, two special tokens.
/// Immutable.
class BytePairs {
 public:
  static constexpr std::int64_t merge_count = 48'894;
  static constexpr std::int64_t start_id = 49'406;
  static constexpr std::int64_t end_id = 49'407;
  static constexpr std::int64_t vocab_size = 49'408;

  /// `merges`: the text of the file, one pair a line, the first line a header. `origin` is what errors call it.
  BytePairs(std::string_view merges, const std::string& origin);

  /// Appends the ids of one piece's UTF-8 bytes.
  void encode(std::string_view piece, std::vector<std::int64_t>& out) const;

  /// The bytes of an id; those at the end of a word end in a space.
  const std::string& bytes(std::int64_t id) const { return bytes_[static_cast<std::size_t>(id)]; }

 private:
  struct Merge {
    std::uint64_t pair = empty;
    std::int32_t rank = 0;
    std::int32_t id = 0;
  };
  static constexpr std::uint64_t empty = ~std::uint64_t{0};
  static constexpr std::size_t slots = 1 << 17;

  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  Merge& slot(std::uint64_t pair);
  const Merge* find(std::int32_t left, std::int32_t right) const;
  void merge(std::string_view piece, std::vector<std::int64_t>& out) const;

  std::array<std::int32_t, 256> inner_{};  // byte -> id
  std::array<std::int32_t, 256> last_{};   // byte at the end of a word -> id
  std::vector<Merge> table_;               // open addressing
  std::vector<std::string> bytes_;
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> words_;  // words that merge into one id
};

}  // namespace tessera
