#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::json_tokenizer {

/// Maps texts to numbers. It is a double-array trie over bytes, and a lookup needs one memory access per byte. Built once, then
/// only read.
class ByteTrie {
 public:
  static constexpr std::int32_t none = -1;
  using Texts = std::vector<std::pair<std::string, std::int32_t>>;

  ByteTrie() : units_(256) {}
  /// Numbers must not be negative. If a text appears several times, its last number counts. Empty texts are never found.
  explicit ByteTrie(Texts texts);

  /// Calls visit(length, number) for each stored text that is a prefix of `text`, the shortest first.
  template <class Visit>
  void prefixes(std::string_view text, Visit&& visit) const {
    std::uint32_t node = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (!step(node, text[i])) return;
      if (units_[node].number != none) visit(i + 1, units_[node].number);
    }
  }

  struct Found {
    std::size_t length = 0;
    std::int32_t number = none;
  };
  /// Returns the length and the number of the longest stored text that is a prefix of `text`.
  Found longest(std::string_view text) const {
    Found found;
    prefixes(text, [&](std::size_t length, std::int32_t number) { found = {length, number}; });
    return found;
  }

  /// Returns the number of the text, or `none`.
  std::int32_t find(std::string_view text) const {
    std::uint32_t node = 0;
    for (const char c : text)
      if (!step(node, c)) return none;
    return text.empty() ? none : units_[node].number;
  }

 private:
  // A unit holds one node. For a node and a byte, let u be the unit at index (base of the node XOR byte). If the parent of u is the node, u
  // is its child for this byte; otherwise there is no such child. A node without children has base 0, so u is one of the units 0 to 255,
  // whose parent is never this node. Units are allocated in blocks of 256, so that a base XOR any byte is a valid index.
  struct Unit {
    std::uint32_t base = 0;
    std::uint32_t parent = ~0U;
    std::int32_t number = none;
  };
  class Builder;

  bool step(std::uint32_t& node, char c) const {
    const std::uint32_t child = units_[node].base ^ static_cast<std::uint8_t>(c);
    if (units_[child].parent != node) return false;
    node = child;
    return true;
  }

  std::vector<Unit> units_;
};

}  // namespace tessera::json_tokenizer
