#include "src/data/tokenizers/byte_pairs.h"

#include <algorithm>
#include <queue>
#include <unordered_map>

#include "src/data/tokenizers/json/characters.h"
#include "src/data/tokenizers/unicode.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr std::string_view word_end = "</w>";

struct Symbols {
  std::unordered_map<std::string, std::int32_t> ids;
  std::vector<std::string> names;

  void add(const std::string& name) {
    ids[name] = static_cast<std::int32_t>(names.size());  // if a name is added again, its last id counts
    names.push_back(name);
  }
};

std::vector<std::string_view> split_words(std::string_view line) {
  std::vector<std::string_view> words;
  for (std::size_t i = 0; i < line.size();) {
    const std::size_t begin = line.find_first_not_of(" \t\r", i);
    if (begin == std::string_view::npos) break;
    i = std::min(line.find_first_of(" \t\r", begin), line.size());
    words.push_back(line.substr(begin, i - begin));
  }
  return words;
}

struct Pair {
  std::string left;
  std::string right;
};

std::vector<Pair> read_merges(std::string_view text, const std::string& origin) {
  std::vector<Pair> merges;
  bool ends_words = false;
  std::size_t begin = std::min(text.find('\n'), text.size() - 1) + 1;  // after the header
  while (merges.size() < BytePairs::merge_count && begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::vector<std::string_view> words = split_words(text.substr(begin, end - begin));
    if (words.empty() && end == text.size()) break;
    if (words.size() != 2)
      user_error(origin, ":", merges.size() + 2, ": expected two symbols that merge, got ", words.size(),
                 "; is this CLIP's bpe_simple_vocab_16e6.txt?");
    ends_words = ends_words || words[1].ends_with(word_end);
    merges.push_back({std::string(words[0]), std::string(words[1])});
    begin = end + 1;
  }
  if (merges.size() < BytePairs::merge_count)
    user_error(origin, ": has ", with_thousands(static_cast<long long>(merges.size())), " merges, clip-bpe needs ",
               with_thousands(BytePairs::merge_count), "; is this CLIP's bpe_simple_vocab_16e6.txt, and whole?");
  if (!ends_words) user_error(origin, ": no merge ends in </w>: these are not CLIP's merges, but perhaps GPT-2's");
  return merges;
}

struct Candidate {
  std::int32_t rank;
  std::uint32_t left;  // index of the left symbol
  std::int32_t left_id, right_id;

  bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : left > other.left; }
};

constexpr std::size_t longest_short = 64;  // maximum number of bytes for merge_short(), which takes quadratic time

struct Symbol {
  std::int32_t id;  // -1: merged into the previous symbol
  std::uint32_t previous, next;
};

}  // namespace

std::vector<std::uint8_t> bytes_in_order() {
  std::vector<std::uint8_t> order;
  for (const bool printable : {true, false})
    for (unsigned byte = 0; byte < 256; ++byte)
      if ((json_tokenizer::character_of_byte(static_cast<std::uint8_t>(byte)) == byte) == printable)
        order.push_back(static_cast<std::uint8_t>(byte));
  return order;
}

std::size_t BytePairs::slot_of(std::uint32_t pair) const {
  std::size_t i = pair * 0x9E3779B97F4A7C15u >> 47;  // 17 bits
  while (table_[i].rank != no_rank && table_[i].pair != pair) i = (i + 1) & (slots - 1);
  return i;
}

std::int32_t BytePairs::rank_of(std::int32_t left, std::int32_t right) const {
  return table_[slot_of(pair_of(left, right))].rank;
}

BytePairs::BytePairs(std::string_view text, const std::string& origin) : table_(slots) {
  const std::vector<std::uint8_t> order = bytes_in_order();
  Symbols symbols;
  std::array<std::string, 256> characters;
  for (const std::uint8_t byte : order) {
    unicode::append_utf8(characters[byte], json_tokenizer::character_of_byte(byte));
    symbols.add(characters[byte]);
  }
  for (const std::uint8_t byte : order) symbols.add(characters[byte] + std::string(word_end));
  const std::vector<Pair> merges = read_merges(text, origin);
  for (const Pair& pair : merges) symbols.add(pair.left + pair.right);
  for (std::size_t b = 0; b < 256; ++b) {
    inner_[b] = symbols.ids.at(characters[b]);
    last_[b] = symbols.ids.at(characters[b] + std::string(word_end));
  }
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    merged_.push_back(symbols.ids.at(merges[rank].left + merges[rank].right));
    const auto left = symbols.ids.find(merges[rank].left), right = symbols.ids.find(merges[rank].right);
    if (left == symbols.ids.end() || right == symbols.ids.end()) continue;  // no text can contain this pair
    const std::uint32_t pair = pair_of(left->second, right->second);
    table_[slot_of(pair)] = {pair, static_cast<std::int32_t>(rank)};
  }

  for (const std::string& name : symbols.names) {
    const bool ends = std::string_view(name).ends_with(word_end);
    std::string& bytes = bytes_.emplace_back();
    for (const char32_t code :
         unicode::decode(std::string_view(name).substr(0, name.size() - (ends ? word_end.size() : 0))))
      if (const int byte = json_tokenizer::byte_of_character(code); byte >= 0) bytes += static_cast<char>(byte);
    if (ends) bytes += ' ';
  }
  bytes_.resize(vocab_size);

  read_words();
}

void BytePairs::read_words() {
  std::vector<std::int64_t> ids;
  for (std::size_t id = 256; id < bytes_.size(); ++id) {
    const std::string& bytes = bytes_[id];
    if (bytes.size() < 2 || bytes.back() != ' ') continue;
    const std::string_view word = std::string_view(bytes).substr(0, bytes.size() - 1);
    ids.clear();
    merge(word, ids);
    if (ids.size() == 1) words_.insert(word, static_cast<std::int32_t>(ids[0]));
  }
}

void BytePairs::encode(std::string_view piece, std::vector<std::int64_t>& out) const {
  if (const std::int32_t id = words_.find(piece); id != WordTable::none)
    out.push_back(id);
  else
    merge(piece, out);
}

void BytePairs::merge(std::string_view piece, std::vector<std::int64_t>& out) const {
  if (piece.size() <= longest_short)
    merge_short(piece, out);
  else
    merge_long(piece, out);
}

// Merges as the reference does: first all occurrences of the pair with the lowest rank, from left to right, then those of the
// next pair.
void BytePairs::merge_short(std::string_view piece, std::vector<std::int64_t>& out) const {
  std::array<std::int32_t, longest_short> ids;    // NOLINT: filled up to `size`
  std::array<std::int32_t, longest_short> ranks;  // rank of each symbol's pair with the next one
  std::size_t size = piece.size();
  for (std::size_t i = 0; i < size; ++i) {
    const auto byte = static_cast<std::uint8_t>(piece[i]);
    ids[i] = i + 1 == size ? last_[byte] : inner_[byte];
    if (i > 0) ranks[i - 1] = rank_of(ids[i - 1], ids[i]);
  }
  while (size > 1) {
    const auto* const best = std::min_element(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(size - 1));
    if (*best == no_rank) break;
    const std::int32_t rank = *best;
    std::size_t kept = static_cast<std::size_t>(best - ranks.begin());
    bool stale = false;  // whether a merge made the last kept symbol; then the rank of the pair (this symbol, next symbol) is unknown
    for (std::size_t i = kept; i < size; ++kept) {
      const bool both = i + 1 < size && ranks[i] == rank;
      const std::int32_t rank_behind = i + 1 < size ? ranks[i] : no_rank;
      ids[kept] = both ? merged_[static_cast<std::size_t>(rank)] : ids[i];
      if (kept > 0 && (both || stale)) ranks[kept - 1] = rank_of(ids[kept - 1], ids[kept]);
      if (!both) ranks[kept] = rank_behind;
      stale = both;
      i += both ? 2 : 1;
    }
    size = kept;
  }
  out.insert(out.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(size));
}

// Returns the same as merge_short(), but uses a heap, so that a word of a megabyte does not take quadratic time. A merge makes new
// candidates; they are added to the heap only after all candidates with the rank of this merge have been handled.
void BytePairs::merge_long(std::string_view piece, std::vector<std::int64_t>& out) const {
  constexpr std::uint32_t none = ~std::uint32_t{0};
  const auto size = static_cast<std::uint32_t>(piece.size());
  std::vector<Symbol> symbols(size);
  for (std::uint32_t i = 0; i < size; ++i) {
    const auto byte = static_cast<std::uint8_t>(piece[i]);
    symbols[i] = {i + 1 == size ? last_[byte] : inner_[byte], i == 0 ? none : i - 1, i + 1 == size ? none : i + 1};
  }
  std::vector<Candidate> fresh;
  const auto consider = [&](std::uint32_t left) {
    const std::int32_t a = symbols[left].id, b = symbols[symbols[left].next].id;
    if (const std::int32_t rank = rank_of(a, b); rank != no_rank) fresh.push_back({rank, left, a, b});
  };
  for (std::uint32_t i = 0; i + 1 < size; ++i) consider(i);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap(std::greater<>(), std::move(fresh));
  fresh.clear();
  std::int32_t rank = heap.empty() ? 0 : heap.top().rank;
  while (!heap.empty() || !fresh.empty()) {
    if (heap.empty() || heap.top().rank != rank) {
      for (const Candidate& candidate : fresh) heap.push(candidate);
      fresh.clear();
      rank = heap.top().rank;
    }
    const Candidate best = heap.top();
    heap.pop();
    Symbol& left = symbols[best.left];
    if (left.id != best.left_id || left.next == none || symbols[left.next].id != best.right_id) continue;
    Symbol& right = symbols[left.next];
    left.id = merged_[static_cast<std::size_t>(best.rank)];
    right.id = -1;
    left.next = right.next;
    if (left.next != none) {
      symbols[left.next].previous = best.left;
      consider(best.left);
    }
    if (left.previous != none) consider(left.previous);
  }
  for (std::uint32_t i = 0; i < size; ++i)
    if (symbols[i].id >= 0) out.push_back(symbols[i].id);
}

}  // namespace tessera
