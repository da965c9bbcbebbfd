#include "src/data/tokenizers/normalization.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "src/data/tokenizers/unicode.h"

namespace tessera::unicode {
namespace {

// A combining mark. `pairs` lists the characters that the mark combines with, each followed by its composite with the mark.
struct Marked {
  char32_t mark;
  std::u32string_view pairs;
};

// The characters in the table `singletons` decompose to one character. Those in `composites` decompose to two characters that NFC composes
// again, and those in `separated` to two characters that NFC does not compose.
#include "src/data/tokenizers/tables/normalization.inc"
#include "src/data/tokenizers/tables/compatibility.inc"

// Hangul syllables are computed without a table (Unicode Standard, section 3.12).
constexpr char32_t hangul = 0xAC00, lead = 0x1100, vowel = 0x1161, trail = 0x11A7;
constexpr char32_t lead_count = 19, vowel_count = 21, trail_count = 28;
constexpr char32_t syllable_count = lead_count * vowel_count * trail_count;

struct Decomposition {
  char32_t first = 0, second = 0;  // the one or two characters of the decomposition; 0 if absent
};

// Calls visit(character, mark, both) for each pair of a table. `both` is the composite of character and mark.
template <class Visit>
void for_each_pair(std::span<const Marked> table, Visit&& visit) {
  for (const Marked& row : table)
    for (std::size_t i = 0; i < row.pairs.size(); i += 2) visit(row.pairs[i], row.mark, row.pairs[i + 1]);
}

struct Tables {
  explicit Tables(Version version) : combining(combining_classes) {
    for (const Replaced& run : singletons)
      for (std::size_t i = 0; i < run.text.size(); ++i)
        decomposition.at(run.first + static_cast<char32_t>(i)) = {run.text[i]};
    const auto decompose = [&](char32_t first, char32_t mark, char32_t both) {
      decomposition.at(both) = {first, mark};
    };
    for_each_pair(separated, decompose);
    for_each_pair(composites, decompose);
    for_each_pair(composites,
                  [&](char32_t first, char32_t mark, char32_t both) { pairs.emplace(pair_key(first, mark), both); });
    if (version == Version::hugging_face) {
      for (const Run& run : parse_runs(newer_marks))
        for (char32_t code = run.first; code <= run.last; ++code) combining.at(code) = 0;
      decomposition.at(0x11938) = {};
      pairs.erase(pair_key(0x11935, 0x11930));
    }
  }

  static std::uint64_t pair_key(char32_t first, char32_t second) { return std::uint64_t{first} << 32 | second; }

  PageTable<std::uint8_t> combining;
  PageTable<Decomposition> decomposition;
  std::unordered_map<std::uint64_t, char32_t> pairs;
};

const Tables& tables(Version version) {
  static const Tables python(Version::unicode14);
  static const Tables rust(Version::hugging_face);
  return version == Version::unicode14 ? python : rust;
}

void append_decomposed(std::u32string& out, char32_t code, const Tables& t) {
  if (code >= hangul && code < hangul + syllable_count) {
    const char32_t s = code - hangul;
    out += lead + s / (vowel_count * trail_count);
    out += vowel + s % (vowel_count * trail_count) / trail_count;
    if (s % trail_count != 0) out += trail + s % trail_count;
    return;
  }
  const Decomposition entry = t.decomposition[code];
  if (entry.first == 0) {
    out += code;
    return;
  }
  append_decomposed(out, entry.first, t);
  if (entry.second != 0) append_decomposed(out, entry.second, t);
}

// Sorts each run of marks by combining class. Marks of the same class stay in order.
void order_marks(std::u32string& text, const Tables& t) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] < 0x300 || t.combining[text[i]] == 0) continue;
    const std::size_t begin = i;
    while (i < text.size() && t.combining[text[i]] != 0) ++i;
    if (i - begin > 1)
      std::stable_sort(text.begin() + static_cast<std::ptrdiff_t>(begin), text.begin() + static_cast<std::ptrdiff_t>(i),
                       [&](char32_t a, char32_t b) { return t.combining[a] < t.combining[b]; });
  }
}

// Returns the composite of two code points, or 0 if they do not combine.
char32_t pair_composite(char32_t first, char32_t second, const Tables& t) {
  if (first >= lead && first < lead + lead_count && second >= vowel && second < vowel + vowel_count)
    return hangul + ((first - lead) * vowel_count + (second - vowel)) * trail_count;
  if (first >= hangul && first < hangul + syllable_count && (first - hangul) % trail_count == 0 && second > trail &&
      second < trail + trail_count)
    return first + (second - trail);
  const auto found = t.pairs.find(Tables::pair_key(first, second));
  return found == t.pairs.end() ? 0 : found->second;
}

}  // namespace

std::u32string decompose(std::u32string_view text, Version version) {
  const Tables& t = tables(version);
  std::u32string out;
  out.reserve(text.size() + text.size() / 4);
  for (const char32_t code : text) {
    if (code < 0xC0)
      out += code;
    else
      append_decomposed(out, code, t);
  }
  order_marks(out, t);
  return out;
}

void mark_composable(ClassTable& table, std::uint8_t bit) {
  table.add(combining_classes, bit);
  for (const Replaced& run : singletons)
    for (std::size_t i = 0; i < run.text.size(); ++i) table.add(run.first + static_cast<char32_t>(i), bit);
  for_each_pair(separated, [&](char32_t, char32_t, char32_t both) { table.add(both, bit); });
  for (const Marked& row : composites) table.add(row.mark, bit);
  for (char32_t code = vowel; code < vowel + vowel_count; ++code) table.add(code, bit);
  for (char32_t code = trail + 1; code < trail + trail_count; ++code) table.add(code, bit);
}

namespace {

// Composes decomposed text in place.
void recompose(std::u32string& out, const Tables& t) {
  std::size_t size = 0;     // length of the text composed so far
  std::size_t starter = 0;  // position of the last starter
  bool has_starter = false;
  int last_class = -1;  // combining class of the last character kept after the starter; -1: none
  for (const char32_t code : out) {
    const int combining = t.combining[code];
    if (has_starter && last_class < combining) {
      if (const char32_t both = pair_composite(out[starter], code, t); both != 0) {
        out[starter] = both;
        continue;
      }
    }
    if (combining == 0) {
      starter = size;
      has_starter = true;
      last_class = -1;
    } else {
      last_class = combining;
    }
    out[size++] = code;
  }
  out.resize(size);
}

}  // namespace

std::u32string compose(std::u32string_view text) {
  // Characters below U+0300 do not combine with each other, and each is its own composition.
  if (std::all_of(text.begin(), text.end(), [](char32_t code) { return code < 0x300; })) return std::u32string(text);
  std::u32string out = decompose(text, Version::unicode14);
  recompose(out, tables(Version::unicode14));
  return out;
}

namespace {

// Returns the position of each character's compatibility decomposition in `compatibility`; 0 if it has none.
const PageTable<std::uint16_t>& compatibility_places() {
  static const PageTable<std::uint16_t> table = [] {
    static_assert(compatibility.size() < 0x10000);
    PageTable<std::uint16_t> out;
    for (std::size_t at = 0; at < compatibility.size(); at = compatibility.find(U'\n', at) + 1)
      out.at(compatibility[at]) = static_cast<std::uint16_t>(at + 1);
    return out;
  }();
  return table;
}

std::u32string decompose_compatibly(std::u32string_view text) {
  const Tables& t = tables(Version::hugging_face);
  const PageTable<std::uint16_t>& places = compatibility_places();
  std::u32string out;
  out.reserve(text.size() + text.size() / 4);
  for (const char32_t code : text) {
    if (const std::size_t place = places[code]; place != 0)
      out += compatibility.substr(place, compatibility.find(U'\n', place) - place);
    else
      append_decomposed(out, code, t);
  }
  order_marks(out, t);
  return out;
}

// Returns, for each character, a bit for each normal form that may change it.
const ClassTable& changes() {
  static const ClassTable table = [] {
    const Tables& t = tables(Version::hugging_face);
    const auto bit = [](Form form) { return static_cast<std::uint8_t>(1U << static_cast<unsigned>(form)); };
    ClassTable out;
    mark_composable(out, bit(Form::nfc) | bit(Form::nfkc));
    for (char32_t code = 0xA0; code < code_points; ++code) {
      const bool syllable = code >= hangul && code < hangul + syllable_count;
      if (syllable || t.decomposition[code].first != 0 || t.combining[code] != 0) out.add(code, bit(Form::nfd) | bit(Form::nfkd));
      if (compatibility_places()[code] != 0) out.add(code, bit(Form::nfkc) | bit(Form::nfkd));
    }
    return out;
  }();
  return table;
}

}  // namespace

std::u32string normal_form(std::u32string_view text, Form form) {
  const bool compatible = form == Form::nfkc || form == Form::nfkd;
  std::u32string out = compatible ? decompose_compatibly(text) : decompose(text, Version::hugging_face);
  if (form == Form::nfc || form == Form::nfkc) recompose(out, tables(Version::hugging_face));
  return out;
}

bool may_change(char32_t code, Form form) {
  static const ClassTable& table = changes();
  return (table[code] >> static_cast<unsigned>(form) & 1U) != 0;
}

}  // namespace tessera::unicode
