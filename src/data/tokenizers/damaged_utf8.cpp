#include "src/data/tokenizers/damaged_utf8.h"

#include <cstdint>

#include "src/data/tokenizers/one_byte_encodings.h"
#include "src/data/tokenizers/unicode.h"
#include <tessera/base/text.h>

namespace tessera::damaged_utf8 {
namespace {

// The kinds of bytes in a sequence.
enum Kind : std::uint8_t { other = 0, continuation = 1, space = 2, lost = 4, question = 8 };

// Reads bytes by their distance from an offset. A byte beyond the end is -1.
class Window {
 public:
  Window(std::string_view bytes, std::size_t at) : bytes_(bytes), at_(at) {}

  int operator[](std::size_t k) const {
    return at_ + k < bytes_.size() ? static_cast<std::uint8_t>(bytes_[at_ + k]) : -1;
  }
  bool in(std::size_t k, int low, int high) const { return (*this)[k] >= low && (*this)[k] <= high; }
  bool is(std::size_t k, int kinds) const { return (kind(k) & kinds) != 0; }

 private:
  int kind(std::size_t k) const {
    const int byte = (*this)[k];
    if (byte >= 0x80 && byte <= 0xBF) return continuation;
    if (byte == ' ') return space;
    if (byte == one_byte::lost_byte) return lost;
    return byte == '?' ? question : other;
  }

  std::string_view bytes_;
  std::size_t at_;
};

// If the window starts with a sequence that would be valid UTF-8 with byte A0 in place of a space, returns the sequence's length; otherwise
// returns 0. Accepts only sequences that encode likely characters.
std::size_t altered_length(const Window& w) {
  const int lead = w[0];
  const auto likely = [&](std::size_t k) { return w.is(k, continuation) && w[k] != 0x85 && w[k] != 0xA0; };
  const bool two = lead == 0xC2 || lead == 0xC3 || lead == 0xC5 || lead == 0xCE || lead == 0xD0 || lead == 0xD9;
  if (two) return w.is(1, space) ? 2 : 0;
  if ((lead == 0xE2 || lead == 0xE3) && w.is(1, space) && likely(2)) return 3;
  if (lead >= 0xE0 && lead <= 0xE3 && likely(1) && w.is(2, space)) return 3;
  if (lead != 0xF0) return 0;
  for (const std::size_t at : {1, 2, 3}) {
    bool good = w.is(at, space);
    for (std::size_t k = 1; k <= 3; ++k) good = good && (k == at || w.is(k, continuation));
    if (good) return 4;
  }
  return 0;
}

// Returns the length of the sequence at the window's start if it lost bytes; otherwise 0.
std::size_t lost_length(const Window& w) {
  constexpr int gone = lost | question, kept = lost | continuation;
  const int lead = w[0];
  if (lead == one_byte::lost_byte) return 1;
  if (w.in(0, 0xC2, 0xDF)) return w.is(1, lost) || (lead <= 0xC3 && w.is(1, question)) ? 2 : 0;
  if (lead == 0xED && w.in(1, 0xA0, 0xAF) && w[3] == 0xED && w.in(4, 0xB0, 0xBF))  // CESU-8
    if ((w.is(2, gone) && w.is(5, gone | kept)) || (w.is(2, gone | kept) && w.is(5, gone))) return 6;
  if (w.in(0, 0xE0, 0xEF)) return (w.is(1, gone) && w.is(2, kept)) || (w.is(1, kept) && w.is(2, gone)) ? 3 : 0;
  if (!w.in(0, 0xF0, 0xF4)) return 0;
  for (const std::size_t at : {1, 2, 3}) {
    bool good = w.is(at, gone);
    for (std::size_t k = 1; k <= 3; ++k) good = good && (k == at || w.is(k, kept));
    if (good) return 4;
  }
  return 0;
}

bool begins_a_grave_word(std::string_view rest) {
  for (const std::string_view word : {" ", "quele", "quela", "quilo", "s "})
    if (rest.starts_with(word)) return true;
  return false;
}

// Returns the code point of the CESU-8 pair at the start of the bytes, or 0 if there is none. If there are only six bytes, the last one may
// be a line break instead of the pair's last byte, as in ftfy's pattern.
char32_t cesu8_pair(std::string_view bytes) {
  const Window w(bytes, 0);
  const bool last = w.in(5, 0x80, 0xBF) || (bytes.size() == 6 && w[5] == '\n');
  if (w[0] != 0xED || !w.in(1, 0xA0, 0xAF) || !w.in(2, 0x80, 0xBF) || w[3] != 0xED || !w.in(4, 0xB0, 0xBF) || !last)
    return 0;
  const auto bits = [&](std::size_t k, int mask) { return static_cast<char32_t>(w[k] & mask); };
  return 0x10000 + (bits(1, 0x0F) << 16) + (bits(2, 0x3F) << 10) + (bits(4, 0x0F) << 6) + bits(5, 0x3F);
}

}  // namespace

std::string restore_no_break_spaces(std::string bytes) {
  std::string out;
  out.reserve(bytes.size());
  bool any = false;
  for (std::size_t i = 0; i < bytes.size() && !any; ++i) any = altered_length({bytes, i}) > 0;
  if (!any) return bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    out += bytes[i];
    if (bytes[i] == '\xC3' && i + 1 < bytes.size() && bytes[i + 1] == ' ' &&
        !begins_a_grave_word(std::string_view(bytes).substr(i + 2)))
      out += '\xA0';
  }
  for (std::size_t i = 0; i < out.size();) {
    const std::size_t length = altered_length({out, i});
    for (std::size_t k = 0; k < length; ++k)
      if (out[i + k] == ' ') out[i + k] = '\xA0';
    i += length > 0 ? length : 1;
  }
  return out;
}

std::string replace_lost(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (std::size_t i = 0; i < bytes.size();) {
    const std::size_t length = lost_length({bytes, i});
    if (length > 0)
      out += "\xEF\xBF\xBD";
    else
      out += bytes[i];
    i += length > 0 ? length : 1;
  }
  return out;
}

std::optional<std::u32string> decode_variants(std::string_view bytes) {
  if (bytes.find('\xED') == std::string_view::npos && bytes.find('\xC0') == std::string_view::npos) {
    if (!is_utf8(bytes)) return std::nullopt;
    return unicode::decode(bytes);
  }
  std::string plain;  // the bytes, with CESU-8 pairs and C0 80 converted to UTF-8
  plain.reserve(bytes.size());
  for (std::size_t i = 0; i < bytes.size();) {
    const std::string_view rest = bytes.substr(i);
    if (const char32_t code = cesu8_pair(rest); code != 0) {
      unicode::append_utf8(plain, code);
      i += 6;
    } else if (rest.starts_with(std::string_view("\xC0\x80")) || rest == "\xC0\n") {
      plain += '\0';
      i += 2;
    } else {
      plain += bytes[i++];
    }
  }
  if (!is_utf8(plain)) return std::nullopt;
  return unicode::decode(plain);
}

}  // namespace tessera::damaged_utf8
