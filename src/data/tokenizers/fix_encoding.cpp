#include "src/data/tokenizers/fix_encoding.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "src/data/tokenizers/unicode.h"
#include <tessera/base/text.h>

namespace tessera {
namespace {

// A set of positions in ftfy's pattern, one bit for each position. Positions are numbered through all its alternatives in order.
struct Places {
  std::uint64_t low, high;
};

#include "src/data/tokenizers/tables/mojibake.inc"

// Flags of a character. They say which kinds of UTF-8 bytes can become this character when a one-byte encoding decodes them.
enum Clue : std::uint8_t {
  first_of_2 = 1,
  first_of_3 = 2,
  first_of_4 = 4,
  continuation = 8,          // also set for a space, which may have been U+00A0
  continuation_strict = 16,  // like `continuation`, but without characters that are often meant literally: spaces, dashes, quotes
  western = 32               // the character is in Latin-1 or Windows-1252, above ASCII
};

// Returns the characters of bytes 0x80 to 0xFF in an encoding. `encoding` 0 is Windows-1252; the others follow in the order of Encoding.
std::span<const char32_t, 128> one_byte_page(std::size_t encoding) {
  return std::span(one_byte_pages).subspan(128 * encoding).first<128>();
}

std::uint8_t clues_of(char32_t code) {
  static const unicode::PageTable<std::uint8_t> clues = [] {
    unicode::PageTable<std::uint8_t> out(clue_runs);
    for (const char32_t each : one_byte_page(0)) out.at(each) |= western;
    for (char32_t each = 0x80; each < 0x100; ++each) out.at(each) |= western;
    return out;
  }();
  return clues[code];
}

// The one-byte encodings with which UTF-8 is often decoded by mistake, in the order in which ftfy tries them.
enum Encoding : std::uint8_t {
  latin_1, windows_1252, windows_1251, windows_1250, windows_1253, windows_1254, windows_1257, iso_8859_2, mac_roman, cp437, encoding_count
};

constexpr char lost_byte = 0x1A;  // represents a lost character (U+FFFD) in the Windows encodings, as in ftfy

// Sets of encodings, one bit for each. In the Windows encodings, a byte to which no character is assigned decodes to the code point of the
// same value. Below 0xA0, this code point is a C1 control, as on the Web.
constexpr std::uint16_t all_encodings = (1 << encoding_count) - 1;
constexpr std::uint16_t windows_encodings = (2 << windows_1257) - (1 << windows_1252);

constexpr bool is_windows(int encoding) {
  return (windows_encodings >> encoding & 1) != 0;
}

// The encodings that have a character, and its byte in each of them.
struct CharacterBytes {
  std::uint16_t encodings = 0;
  std::array<std::uint8_t, encoding_count> bytes{};
};

// Returns the bytes of the characters that are not ASCII.
const unicode::PageTable<CharacterBytes>& byte_table() {
  static const unicode::PageTable<CharacterBytes> table = [] {
    unicode::PageTable<CharacterBytes> out;
    const auto set = [&](char32_t code, std::size_t encoding, std::size_t byte) {
      CharacterBytes& character = out.at(code);
      character.encodings |= static_cast<std::uint16_t>(1 << encoding);
      character.bytes[encoding] = static_cast<std::uint8_t>(byte);
    };
    for (std::size_t b = 0x80; b < 0x100; ++b) {
      set(static_cast<char32_t>(b), latin_1, b);
      for (std::size_t e = 1; e < encoding_count; ++e) set(one_byte_page(e - 1)[b - 0x80], e, b);
    }
    for (std::size_t e = windows_1252; e <= windows_1257; ++e) set(0xFFFD, e, static_cast<std::uint8_t>(lost_byte));
    return out;
  }();
  return table;
}

// Returns a set of encodings: bit e is set if encoding e has all characters of the text. The Windows encodings also have U+FFFD, which is
// written as lost_byte.
std::uint16_t encodings_of(std::u32string_view text) {
  std::uint16_t common = all_encodings;
  for (const char32_t code : text) {
    if (code >= 0x80)
      common &= byte_table()[code].encodings;
    else if (code == static_cast<char32_t>(lost_byte))
      common &= static_cast<std::uint16_t>(~windows_encodings);
    if (common == 0) break;
  }
  return common;
}

// Returns the bytes of a text in an encoding, which must have all characters of the text.
std::string encode_one_byte(std::u32string_view text, Encoding encoding) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t code : text)
    out += static_cast<char>(code < 0x80 ? static_cast<std::uint8_t>(code) : byte_table()[code].bytes[encoding]);
  return out;
}

// Reads bytes by their distance from an offset. A byte beyond the end is -1.
class Window {
 public:
  // The kinds of bytes in a sequence.
  enum Kind : std::uint8_t { other = 0, trailing = 1, space = 2, lost = 4, question = 8 };

  Window(std::string_view bytes, std::size_t at) : bytes_(bytes), at_(at) {}

  int operator[](std::size_t k) const {
    return at_ + k < bytes_.size() ? static_cast<std::uint8_t>(bytes_[at_ + k]) : -1;
  }
  bool in(std::size_t k, int low, int high) const { return (*this)[k] >= low && (*this)[k] <= high; }
  bool is(std::size_t k, int kinds) const { return (kind(k) & kinds) != 0; }

 private:
  int kind(std::size_t k) const {
    const int byte = (*this)[k];
    if (byte >= 0x80 && byte <= 0xBF) return trailing;
    if (byte == ' ') return space;
    if (byte == lost_byte) return lost;
    return byte == '?' ? question : other;
  }

  std::string_view bytes_;
  std::size_t at_;
};

// Returns whether one of the bytes 1 to 3 is of the kinds `one`, and the other two are of the kinds `others`.
bool one_of_three(const Window& w, int one, int others) {
  for (const std::size_t at : {1, 2, 3}) {
    bool good = w.is(at, one);
    for (std::size_t k = 1; k <= 3; ++k) good = good && (k == at || w.is(k, others));
    if (good) return true;
  }
  return false;
}

// If the window starts with a sequence that would be valid UTF-8 with byte A0 in place of a space, returns the sequence's length; otherwise
// returns 0. Accepts only sequences that encode likely characters.
std::size_t altered_length(const Window& w) {
  const int lead = w[0];
  const auto likely = [&](std::size_t k) { return w.is(k, Window::trailing) && w[k] != 0x85 && w[k] != 0xA0; };
  const bool two = lead == 0xC2 || lead == 0xC3 || lead == 0xC5 || lead == 0xCE || lead == 0xD0 || lead == 0xD9;
  if (two) return w.is(1, Window::space) ? 2 : 0;
  if ((lead == 0xE2 || lead == 0xE3) && w.is(1, Window::space) && likely(2)) return 3;
  if (lead >= 0xE0 && lead <= 0xE3 && likely(1) && w.is(2, Window::space)) return 3;
  return lead == 0xF0 && one_of_three(w, Window::space, Window::trailing) ? 4 : 0;
}

// Returns the length of the sequence at the window's start if it lost bytes; otherwise 0.
std::size_t lost_length(const Window& w) {
  constexpr int gone = Window::lost | Window::question, kept = Window::lost | Window::trailing;
  const int lead = w[0];
  if (lead == lost_byte) return 1;
  if (w.in(0, 0xC2, 0xDF)) return w.is(1, Window::lost) || (lead <= 0xC3 && w.is(1, Window::question)) ? 2 : 0;
  if (lead == 0xED && w.in(1, 0xA0, 0xAF) && w[3] == 0xED && w.in(4, 0xB0, 0xBF))  // CESU-8
    if ((w.is(2, gone) && w.is(5, gone | kept)) || (w.is(2, gone | kept) && w.is(5, gone))) return 6;
  if (w.in(0, 0xE0, 0xEF)) return (w.is(1, gone) && w.is(2, kept)) || (w.is(1, kept) && w.is(2, gone)) ? 3 : 0;
  return w.in(0, 0xF0, 0xF4) && one_of_three(w, gone, kept) ? 4 : 0;
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

// Replaces a space with byte A0 where this makes the bytes valid UTF-8. Exception: byte C3 before a space may be the rest of the word "a"
// with a grave accent (U+00E0, bytes C3 A0). In this case, inserts the lost byte A0 before the space and keeps the space.
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

// Replaces each UTF-8 sequence that lost bytes with U+FFFD. In the input, lost_byte or `?` stands in place of a lost byte.
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

// Returns the bytes with CESU-8's surrogate pairs and Java's C0 80 converted to UTF-8.
std::string without_variants(std::string_view bytes) {
  std::string plain;
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
  return plain;
}

// Undoes a wrong decoding of UTF-8. `bytes` is the wrongly decoded text, encoded in the one-byte encoding `encoding`. Decodes `bytes` as
// UTF-8; at level `full`, repairs damaged UTF-8 first. Returns nullopt if the bytes are not UTF-8.
std::optional<std::u32string> decode_bytes(std::string bytes, Encoding encoding, Cleanup level) {
  if (level == Cleanup::full) {
    // MacRoman is excluded from this repair, because in MacRoman the bytes of an en dash and a space would often be mistaken for one
    // damaged character.
    if (encoding != mac_roman) bytes = restore_no_break_spaces(std::move(bytes));
    if (is_windows(encoding)) bytes = replace_lost(bytes);
    bytes = without_variants(bytes);
  }
  if (!is_utf8(bytes)) return std::nullopt;
  return unicode::decode(bytes);
}

std::optional<std::u32string> decode_whole(std::u32string_view text, Cleanup level) {
  const std::uint16_t possible = encodings_of(text);
  const bool full = level == Cleanup::full;
  const bool lost = text.find(U'\uFFFD') != std::u32string_view::npos;
  for (int e = 0; e < (full ? encoding_count : windows_1251); ++e) {
    const auto encoding = static_cast<Encoding>(e);
    if ((possible >> e & 1) == 0 || (lost && !full)) continue;
    if (auto decoded = decode_bytes(encode_one_byte(text, encoding), encoding, level)) return decoded;
  }
  return std::nullopt;
}

// A sequence is two, three or four characters that could come from the bytes of one UTF-8 character. A run is one sequence or several in
// succession. Returns the end of the run that starts at `begin`, or `begin` if no run starts there.
std::size_t run_end(std::u32string_view text, std::size_t begin, Cleanup level) {
  const auto clues = [&](std::size_t i) -> std::uint8_t {
    if (i >= text.size()) return 0;
    const std::uint8_t found = clues_of(text[i]);
    return level == Cleanup::full || (found & western) != 0 ? found : std::uint8_t{0};
  };
  if (begin > 0 && (clues_of(text[begin - 1]) & continuation_strict) != 0) return begin;
  std::size_t end = begin;
  while (true) {
    std::size_t size = 1;  // length of the sequence: a lead and its continuations
    while (size < 4 && (clues(end + size) & continuation) != 0) ++size;
    const std::uint8_t lead = clues(end);
    if ((lead & first_of_2) != 0 && size >= 2)
      end += 2;
    else if ((lead & first_of_3) != 0 && size >= 3)
      end += 3;
    else if ((lead & first_of_4) != 0 && size >= 4)
      end += 4;
    else
      return end;
  }
}

std::u32string decode_runs(std::u32string_view text, Cleanup level) {
  std::u32string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t end = run_end(text, i, level);
    if (end == i) {
      out += text[i++];
      continue;
    }
    const std::u32string_view run = text.substr(i, end - i);
    // A run that is the whole text is skipped, because decode_whole() has already tried it.
    if (run.size() < text.size() && mojibake::is_bad(run))
      out += fix_encoding(std::u32string(run), level);
    else
      out += run;
    i = end;
  }
  return out;
}

// Makes one round of repairs; returns the text itself if nothing can be repaired.
std::u32string repaired(std::u32string text, Cleanup level) {
  const bool ascii = std::all_of(text.begin(), text.end(), [](char32_t code) { return code < 0x80; });
  if (ascii || !mojibake::is_bad(text)) return text;
  if (auto decoded = decode_whole(text, level)) return *decoded;
  if (std::u32string decoded = decode_runs(text, level); decoded != text) return decoded;
  for (char32_t& code : text) code = mojibake::windows_1252(code);
  return text;
}

}  // namespace

namespace mojibake {

// Matches all alternatives at once, with one bit for each position that a match may have reached (Baeza-Yates and Gonnet 1992). No bit is
// ever shifted from the end of an alternative into the next alternative, because the function returns true as soon as a bit reaches an end.
bool is_bad(std::u32string_view text) {
  static const unicode::PageTable<std::uint8_t> sets(place_runs);
  Places reached{0, 0};
  Places entries{first_places.low | anchored_places.low, first_places.high | anchored_places.high};
  for (const char32_t code : text) {
    const Places& here = place_sets[sets[code]];
    reached.high = (reached.high << 1 | reached.low >> 63 | entries.high) & here.high;
    reached.low = (reached.low << 1 | entries.low) & here.low;
    if (((reached.low & last_places.low) | (reached.high & last_places.high)) != 0) return true;
    entries = first_places;
  }
  return false;
}

char32_t windows_1252(char32_t code) {
  return code >= 0x80 && code <= 0x9F ? one_byte_page(0)[code - 0x80] : code;
}

}  // namespace mojibake

std::u32string fix_encoding(std::u32string text, Cleanup level) {
  if (level < Cleanup::mojibake) return text;
  while (true) {
    std::u32string next = repaired(text, level);
    if (next == text) return text;
    text = std::move(next);
  }
}

}  // namespace tessera
