#include "src/data/tokenizers/fix_encoding.h"

#include <algorithm>
#include <optional>

#include "src/data/tokenizers/damaged_utf8.h"
#include "src/data/tokenizers/mojibake_tables.h"
#include "src/data/tokenizers/one_byte_encodings.h"
#include "src/data/tokenizers/unicode.h"
#include <tessera/base/text.h>

namespace tessera {
namespace {

using one_byte::Encoding;

// Undoes a wrong decoding of UTF-8. `bytes` is the wrongly decoded text, encoded in the one-byte encoding `encoding`. Decodes `bytes` as
// UTF-8; at level `full`, repairs damaged UTF-8 first. Returns nullopt if the bytes are not UTF-8.
std::optional<std::u32string> decode_bytes(std::string bytes, Encoding encoding, Cleanup level) {
  if (level != Cleanup::full) {
    if (!is_utf8(bytes)) return std::nullopt;
    return unicode::decode(bytes);
  }
  // MacRoman is excluded from this repair, because in MacRoman the bytes of an en dash and a space would often be mistaken for one damaged
  // character.
  if (encoding != one_byte::mac_roman) bytes = damaged_utf8::restore_no_break_spaces(std::move(bytes));
  if (one_byte::is_windows(encoding)) bytes = damaged_utf8::replace_lost(bytes);
  return damaged_utf8::decode_variants(bytes);
}

std::optional<std::u32string> decode_whole(std::u32string_view text, Cleanup level) {
  const std::uint16_t possible = one_byte::encodings_of(text);
  const bool full = level == Cleanup::full;
  const bool lost = text.find(U'\uFFFD') != std::u32string_view::npos;
  for (int e = 0; e < (full ? one_byte::encoding_count : one_byte::windows_1251); ++e) {
    const auto encoding = static_cast<Encoding>(e);
    if ((possible >> e & 1) == 0 || (lost && !full)) continue;
    if (auto decoded = decode_bytes(one_byte::encode(text, encoding), encoding, level)) return decoded;
  }
  return std::nullopt;
}

// A sequence is two, three or four characters that could come from the bytes of one UTF-8 character. A run is one sequence or several in
// succession. Returns the end of the run that starts at `begin`, or `begin` if no run starts there.
std::size_t run_end(std::u32string_view text, std::size_t begin, Cleanup level) {
  const auto clues = [&](std::size_t i) -> std::uint8_t {
    if (i >= text.size()) return 0;
    const std::uint8_t found = mojibake::clues_of(text[i]);
    return level == Cleanup::full || (found & mojibake::western) != 0 ? found : std::uint8_t{0};
  };
  if (begin > 0 && (mojibake::clues_of(text[begin - 1]) & mojibake::continuation_strict) != 0) return begin;
  std::size_t end = begin;
  while (true) {
    std::size_t size = 1;  // length of the sequence: a lead and its continuations
    while (size < 4 && (clues(end + size) & mojibake::continuation) != 0) ++size;
    const std::uint8_t lead = clues(end);
    if ((lead & mojibake::first_of_2) != 0 && size >= 2)
      end += 2;
    else if ((lead & mojibake::first_of_3) != 0 && size >= 3)
      end += 3;
    else if ((lead & mojibake::first_of_4) != 0 && size >= 4)
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

std::u32string replace_c1_controls(std::u32string text) {
  for (char32_t& code : text) code = mojibake::windows_1252(code);
  return text;
}

// Makes one round of repairs; returns the text itself if nothing can be repaired.
std::u32string repaired(const std::u32string& text, Cleanup level) {
  const bool ascii = std::all_of(text.begin(), text.end(), [](char32_t code) { return code < 0x80; });
  if (ascii || !mojibake::is_bad(text)) return text;
  if (auto decoded = decode_whole(text, level)) return *decoded;
  if (std::u32string decoded = decode_runs(text, level); decoded != text) return decoded;
  return replace_c1_controls(text);
}

}  // namespace

std::u32string fix_encoding(std::u32string text, Cleanup level) {
  if (level < Cleanup::mojibake) return text;
  while (true) {
    std::u32string next = repaired(text, level);
    if (next == text) return text;
    text = std::move(next);
  }
}

}  // namespace tessera
