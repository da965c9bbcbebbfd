#include "src/data/tokenizers/byte_pairs.h"

#include <algorithm>
#include <queue>

#include "src/data/tokenizers/unicode.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr std::string_view word_end = "</w>";

// The printable bytes stand for themselves, the others for U+0100 upward; the vocabulary lists them in this order.
std::vector<std::uint8_t> bytes_in_order() {
  const auto printable = [](int b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; };
  std::vector<std::uint8_t> order;
  for (const bool wanted : {true, false})
    for (int b = 0; b < 256; ++b)
      if (printable(b) == wanted) order.push_back(static_cast<std::uint8_t>(b));
  return order;
}

struct Symbols {
  std::unordered_map<std::string, std::int32_t> ids;
  std::vector<std::string> names;

  void add(const std::string& name) {
    ids[name] = static_cast<std::int32_t>(names.size());  // of equal names the last counts
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
  std::size_t begin = std::min(text.find('\n'), text.size() - 1) + 1;  // behind the header
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
  std::int32_t left_id, right_id, id;

  bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : left > other.left; }
};

struct Symbol {
  std::int32_t id;  // -1: merged into the one before
  std::uint32_t previous, next;
};

}  // namespace

BytePairs::Merge& BytePairs::slot(std::uint64_t pair) {
  std::size_t i = pair * 0x9E3779B97F4A7C15u >> 47;  // 17 bits
  while (table_[i].pair != empty && table_[i].pair != pair) i = (i + 1) & (slots - 1);
  return table_[i];
}

const BytePairs::Merge* BytePairs::find(std::int32_t left, std::int32_t right) const {
  const std::uint64_t pair = static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
  std::size_t i = pair * 0x9E3779B97F4A7C15u >> 47;
  while (table_[i].pair != empty) {
    if (table_[i].pair == pair) return &table_[i];
    i = (i + 1) & (slots - 1);
  }
  return nullptr;
}

BytePairs::BytePairs(std::string_view text, const std::string& origin) : table_(slots) {
  const std::vector<std::uint8_t> order = bytes_in_order();
  Symbols symbols;
  std::unordered_map<char32_t, char> byte_of;
  std::array<std::string, 256> characters;
  char32_t next = 0x100;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const char32_t code = i < 188 ? order[i] : next++;
    unicode::append_utf8(characters[order[i]], code);
    byte_of[code] = static_cast<char>(order[i]);
    symbols.add(characters[order[i]]);
  }
  for (const std::uint8_t byte : order) symbols.add(characters[byte] + std::string(word_end));
  const std::vector<Pair> merges = read_merges(text, origin);
  for (const Pair& pair : merges) symbols.add(pair.left + pair.right);
  for (std::size_t b = 0; b < 256; ++b) {
    inner_[b] = symbols.ids.at(characters[b]);
    last_[b] = symbols.ids.at(characters[b] + std::string(word_end));
  }
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto left = symbols.ids.find(merges[rank].left), right = symbols.ids.find(merges[rank].right);
    if (left == symbols.ids.end() || right == symbols.ids.end()) continue;  // can never come up
    const std::uint64_t pair =
        static_cast<std::uint64_t>(left->second) << 32 | static_cast<std::uint32_t>(right->second);
    slot(pair) = {pair, static_cast<std::int32_t>(rank), symbols.ids.at(merges[rank].left + merges[rank].right)};
  }

  for (const std::string& name : symbols.names) {
    const bool ends = std::string_view(name).ends_with(word_end);
    std::string& bytes = bytes_.emplace_back();
    for (const char32_t code :
         unicode::decode(std::string_view(name).substr(0, name.size() - (ends ? word_end.size() : 0))))
      if (const auto found = byte_of.find(code); found != byte_of.end()) bytes += found->second;
    if (ends) bytes += ' ';
  }
  bytes_.resize(vocab_size);

  std::vector<std::int64_t> ids;
  for (std::size_t id = 256; id < symbols.names.size(); ++id) {
    const std::string& bytes = bytes_[id];
    if (bytes.size() < 2 || bytes.back() != ' ') continue;
    const std::string_view word = std::string_view(bytes).substr(0, bytes.size() - 1);
    ids.clear();
    merge(word, ids);
    if (ids.size() == 1) words_.emplace(word, static_cast<std::int32_t>(ids[0]));
  }
}

void BytePairs::encode(std::string_view piece, std::vector<std::int64_t>& out) const {
  if (const auto found = words_.find(piece); found != words_.end())
    out.push_back(found->second);
  else
    merge(piece, out);
}

// The reference merges the best pair everywhere, then looks for the next best. Candidates that a merge brings up wait
// until all of its rank are done; a heap instead of passes keeps a word of a megabyte from taking quadratic time.
void BytePairs::merge(std::string_view piece, std::vector<std::int64_t>& out) const {
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
    if (const Merge* found = find(a, b)) fresh.push_back({found->rank, left, a, b, found->id});
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
    left.id = best.id;
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
