#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <unicode/uchar.h>
#include <vector>

#include "src/data/tokenizers/json/characters.h"
#include "src/data/tokenizers/json/normalizer.h"
#include "src/data/tokenizers/sentencepiece_model.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::json_tokenizer {
namespace {

constexpr char32_t zero_width_joiner = 0x200D;

int property_of(char32_t code) {
  return u_getIntPropertyValue(static_cast<UChar32>(code), UCHAR_GRAPHEME_CLUSTER_BREAK);
}

bool is_control(int property) {
  return property == U_GCB_CONTROL || property == U_GCB_CR || property == U_GCB_LF;
}

bool is_pictograph(char32_t code) {
  return u_hasBinaryProperty(static_cast<UChar32>(code), UCHAR_EXTENDED_PICTOGRAPHIC) != 0;
}

bool joins_after(int before, int after) {
  const bool syllable = after == U_GCB_LV || after == U_GCB_LVT;
  switch (before) {
    case U_GCB_PREPEND: return !is_control(after);
    case U_GCB_L: return after == U_GCB_L || after == U_GCB_V || syllable;
    case U_GCB_LV:
    case U_GCB_V: return after == U_GCB_V || after == U_GCB_T;
    case U_GCB_LVT:
    case U_GCB_T: return after == U_GCB_T;
    default: return false;
  }
}

// A grapheme is a character with all characters that belong to it. Returns the end of the grapheme that starts at position `at`. Follows
// UAX #29, but does not join flags and Indic conjuncts. This makes no difference, because flags and Indic conjuncts have at least six
// bytes, and the caller treats graphemes of this length character by character.
std::size_t end_of_grapheme(std::string_view text, std::size_t at) {
  std::size_t end = at;
  char32_t last = next_code(text, end);
  if (end == text.size()) return end;
  if (last < 0x80 && static_cast<std::uint8_t>(text[end]) < 0x80) return end + (last == '\r' && text[end] == '\n' ? 1 : 0);
  int before = property_of(last);
  if (is_control(before)) return end;
  bool pictograph = is_pictograph(last), joined = false;  // joined: whether the last character is a joiner that follows a pictograph
  while (end < text.size()) {
    std::size_t next = end;
    const char32_t code = next_code(text, next);
    const int after = property_of(code);
    if ((class_of(code) & joins) != 0) {
      joined = pictograph && code == zero_width_joiner;
      before = U_GCB_OTHER;
    } else if (joined && is_pictograph(code)) {
      joined = false;
    } else if (joins_after(before, after)) {
      before = after;
      pictograph = is_pictograph(code);
    } else {
      break;
    }
    end = next;
  }
  return end;
}

/// Not copyable, because ascii_ refers to texts_.
class Precompiled {
 public:
  Precompiled(const Precompiled&) = delete;
  Precompiled(std::string_view map, const std::string& origin) {
    const auto damaged = [&] { user_error(origin, ": the map of its normalizer Precompiled is damaged"); };
    std::uint32_t size = 0;
    if (map.size() < 4) damaged();
    std::memcpy(&size, map.data(), 4);
    map.remove_prefix(4);
    units_.resize(size / 4);
    if (size > map.size() || units_.empty()) damaged();
    std::memcpy(units_.data(), map.data(), units_.size() * 4);
    texts_ = map.substr(units_.size() * 4);
    if (!is_utf8(texts_)) damaged();
    for (unsigned c = 0; c < 128; ++c) {
      const char character = static_cast<char>(c);
      ascii_[c] = replacement(std::string_view(&character, 1));
      ascii_changes_[c] = ascii_[c].has_value() && *ascii_[c] != std::string_view(&character, 1);
    }
    line_break_changes_ = replacement("\r\n").has_value();
  }

  void apply(Segment& segment, std::string& spare) const {
    const std::string& text = segment.text;
    if (unicode::is_ascii(text) && !changes_ascii(text)) return;
    spare.clear();
    std::size_t head = 0;
    for (std::size_t at = 0; at < text.size();) {
      const bool in_head = at < segment.head || (segment.head > 0 && spare.empty());
      if (is_lone_ascii(text, at)) {
        const auto byte = static_cast<std::uint8_t>(text[at]);
        if (ascii_[byte])
          spare += *ascii_[byte];
        else
          spare += text[at];
        ++at;
      } else {
        const std::size_t end = end_of_grapheme(text, at);
        append(std::string_view(text).substr(at, end - at), spare);
        at = end;
      }
      if (in_head) head = spare.size();
    }
    segment.text.swap(spare);
    segment.head = head;
  }

 private:
  static bool is_lone_ascii(std::string_view text, std::size_t at) {
    const auto ascii = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]) < 0x80; };
    return ascii(at) && text[at] != '\r' && (at + 1 == text.size() || ascii(at + 1));
  }

  bool changes_ascii(std::string_view text) const {
    for (const char c : text)
      if (ascii_changes_[static_cast<std::uint8_t>(c)]) return true;
    return line_break_changes_ && text.find("\r\n") != std::string_view::npos;
  }

  // Appends a grapheme's replacement, as the reference does. A short grapheme is replaced as a whole, by the replacement of the
  // shortest key that is its prefix. A long grapheme, or one without such a key, is replaced character by character.
  void append(std::string_view grapheme, std::string& out) const {
    constexpr std::size_t long_grapheme = 6;  // bytes
    if (grapheme.size() < long_grapheme)
      if (const auto found = replacement(grapheme)) {
        out += *found;
        return;
      }
    for (std::size_t at = 0; at < grapheme.size();) {
      const std::string_view character = grapheme.substr(at, length_of(grapheme[at]));
      out += replacement(character).value_or(character);
      at += character.size();
    }
  }

  std::optional<std::string_view> replacement(std::string_view text) const {
    std::uint64_t node = units_[0].offset();
    for (const char c : text) {
      const auto byte = static_cast<std::uint8_t>(c);
      if (byte == 0) return std::nullopt;
      node ^= byte;
      if (node >= units_.size() || units_[node].label() != byte) return std::nullopt;
      const TrieUnit unit = units_[node];
      node ^= unit.offset();
      if (node >= units_.size()) return std::nullopt;
      if (unit.has_value()) return text_at(units_[node].value());
    }
    return std::nullopt;
  }

  std::optional<std::string_view> text_at(std::size_t at) const {
    const std::string_view texts = texts_;
    if (at > texts.size() || (at < texts.size() && (static_cast<std::uint8_t>(texts[at]) & 0xC0) == 0x80)) return std::nullopt;
    return texts.substr(at, texts.substr(at).find('\0'));
  }

  std::vector<TrieUnit> units_;
  std::string texts_;
  std::array<std::optional<std::string_view>, 128> ascii_;
  std::array<bool, 128> ascii_changes_{};
  bool line_break_changes_ = false;
};

}  // namespace

Normalizer make_precompiled(const std::string& map, const std::string& origin) {
  return [rules = std::make_shared<const Precompiled>(map, origin)](Segment& segment, std::string& spare) { rules->apply(segment, spare); };
}

}  // namespace tessera::json_tokenizer
