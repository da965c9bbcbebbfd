#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <nlohmann/json.hpp>

namespace tessera {

/// Byte-pair encoding by a tokenizer.json's `model` of type BPE: characters, joined pair by pair in the order of the merges.
/// Immutable.
class MergedPairs {
 public:
  /// Throws UserError naming `origin` for a damaged model and for parts that are not known here.
  MergedPairs(const nlohmann::json& model, const std::string& origin);

  /// Appends the ids of one piece of UTF-8.
  void encode(std::string_view piece, std::vector<std::int64_t>& out) const;
  std::optional<std::int64_t> id_of(const std::string& token) const;
  const std::unordered_map<std::string, std::int64_t>& vocabulary() const { return vocabulary_; }
  const std::string& word_end() const { return word_end_; }

 private:
  struct Merge {
    std::int32_t rank;
    std::int32_t id;
  };
  static std::uint64_t pair_of(std::int64_t left, std::int64_t right) {
    return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
  }
  void read_merges(const nlohmann::json& merges, const std::string& origin);
  std::vector<std::int64_t> characters(std::string_view piece) const;

  std::unordered_map<std::string, std::int64_t> vocabulary_;
  std::unordered_map<std::uint64_t, Merge> merges_;
  std::optional<std::int64_t> unknown_;
  std::string word_end_;
  bool fuse_unknown_ = false, byte_fallback_ = false, ignore_merges_ = false;
};

}  // namespace tessera
