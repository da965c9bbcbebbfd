#include "src/data/tokenizers/mojibake_tables.h"

#include "src/data/tokenizers/unicode.h"

namespace tessera::mojibake {
namespace {

// A set of positions in ftfy's pattern, one bit for each position. Positions are numbered through all its alternatives in order.
struct Places {
  std::uint64_t low, high;
};

#include "src/data/tokenizers/tables/mojibake.inc"

}  // namespace

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

std::uint8_t clues_of(char32_t code) {
  static const unicode::PageTable<std::uint8_t> clues = [] {
    unicode::PageTable<std::uint8_t> out(clue_runs);
    for (const char32_t each : one_byte_page(0)) out.at(each) |= western;
    for (char32_t each = 0x80; each < 0x100; ++each) out.at(each) |= western;
    return out;
  }();
  return clues[code];
}

std::span<const char32_t, 128> one_byte_page(std::size_t encoding) {
  return std::span(one_byte_pages).subspan(128 * encoding).first<128>();
}

char32_t windows_1252(char32_t code) {
  return code >= 0x80 && code <= 0x9F ? one_byte_page(0)[code - 0x80] : code;
}

}  // namespace tessera::mojibake
