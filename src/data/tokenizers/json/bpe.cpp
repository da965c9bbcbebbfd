#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <queue>
#include <stdexcept>
#include <unordered_set>
#include <utility>
#include <vector>

#include "src/data/tokenizers/json/byte_trie.h"
#include "src/data/tokenizers/json/characters.h"
#include "src/data/tokenizers/json/model.h"
#include "src/data/tokenizers/json/part.h"
#include "src/data/tokenizers/json/word_cache.h"
#include <tessera/base/error.h>

namespace tessera::json_tokenizer {
namespace {

// Maps pairs of ids to the rank of their merge and the merged id. It is a hash table with open addressing, built once and then
// only read.
class MergeTable {
 public:
  static constexpr std::int32_t no_rank = 0x7FFF'FFFF;
  struct Merge {
    std::uint64_t pair = 0;
    std::int32_t rank = no_rank;
    std::int32_t id = -1;
  };

  explicit MergeTable(std::size_t expected) : slots_(std::bit_ceil(2 * expected + 2)), shift_(static_cast<unsigned>(64 - std::countr_zero(slots_.size()))) {}
  // Inserts a merge. If a pair is inserted again, its last merge counts.
  void insert(std::int32_t left, std::int32_t right, std::int32_t rank, std::int32_t id) {
    const std::uint64_t pair = pair_of(left, right);
    slots_[index_of(pair)] = {pair, rank, id};
  }
  // Returns the pair's merge, or a Merge with rank `no_rank` if the pair has no merge.
  const Merge& find(std::int32_t left, std::int32_t right) const { return slots_[index_of(pair_of(left, right))]; }

 private:
  static std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t index_of(std::uint64_t pair) const {
    std::size_t i = pair * 0x9E3779B97F4A7C15u >> shift_;
    while (slots_[i].rank != no_rank && slots_[i].pair != pair) i = (i + 1) & (slots_.size() - 1);
    return i;
  }

  std::vector<Merge> slots_;
  unsigned shift_;
};

constexpr std::size_t longest_short = 96;  // maximum number of symbols for append_short(), which takes quadratic time

void append_short(const MergeTable& merges, const std::int32_t* symbols, std::size_t count, std::vector<std::int64_t>& out) {
  std::array<std::int32_t, longest_short> ids;           // NOLINT: filled up to `count`
  std::array<std::int32_t, longest_short> ranks, made;   // NOLINT: rank and merged id of each symbol's pair with the next one
  const auto look = [&](std::size_t i) {
    const MergeTable::Merge& merge = merges.find(ids[i], ids[i + 1]);
    ranks[i] = merge.rank;
    made[i] = merge.id;
  };
  std::copy_n(symbols, count, ids.begin());
  for (std::size_t i = 0; i + 1 < count; ++i) look(i);
  while (count > 1) {
    std::int32_t lowest = MergeTable::no_rank;
    for (std::size_t i = 0; i + 1 < count; ++i) lowest = std::min(lowest, ranks[i]);
    if (lowest == MergeTable::no_rank) break;
    std::size_t at = 0;
    while (ranks[at] != lowest) ++at;
    ids[at] = made[at];
    --count;
    for (std::size_t i = at + 1; i < count; ++i) {
      ids[i] = ids[i + 1];
      ranks[i] = ranks[i + 1];
      made[i] = made[i + 1];
    }
    if (at > 0) look(at - 1);
    if (at + 1 < count) look(at);
  }
  out.insert(out.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
}

struct Symbol {
  std::int32_t id;  // -1: merged into the previous symbol
  std::uint32_t previous, next;
};

struct Candidate {
  std::int32_t rank;
  std::uint32_t left;  // index of the left symbol
  std::int32_t left_id, right_id, id;
  bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : left > other.left; }
};

// Returns the same as append_short(), but uses a heap, so that a word of a megabyte does not take quadratic time.
void append_long(const MergeTable& merges, const std::int32_t* ids, std::size_t count, std::vector<std::int64_t>& out) {
  constexpr std::uint32_t none = ~std::uint32_t{0};
  std::vector<Symbol> symbols(count);
  for (std::uint32_t i = 0; i < count; ++i) symbols[i] = {ids[i], i == 0 ? none : i - 1, i + 1 == count ? none : i + 1};
  std::vector<Candidate> found;
  const auto consider = [&](std::uint32_t left, auto&& keep) {
    const std::int32_t a = symbols[left].id, b = symbols[symbols[left].next].id;
    if (const MergeTable::Merge& merge = merges.find(a, b); merge.rank != MergeTable::no_rank) keep(Candidate{merge.rank, left, a, b, merge.id});
  };
  for (std::uint32_t i = 0; i + 1 < count; ++i) consider(i, [&](const Candidate& candidate) { found.push_back(candidate); });
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap(std::greater<>(), std::move(found));
  const auto push = [&](const Candidate& candidate) { heap.push(candidate); };
  while (!heap.empty()) {
    const Candidate best = heap.top();
    heap.pop();
    Symbol& left = symbols[best.left];
    if (left.id != best.left_id || left.next == none || symbols[left.next].id != best.right_id) continue;
    Symbol& right = symbols[left.next];
    left.id = best.id;
    right.id = -1;
    left.next = right.next;
    if (left.next != none) symbols[left.next].previous = best.left;
    if (left.previous != none) consider(left.previous, push);
    if (left.next != none) consider(best.left, push);
  }
  for (const Symbol& symbol : symbols)
    if (symbol.id >= 0) out.push_back(symbol.id);
}

// Merges the symbols and appends the result. The pair with the lowest rank is merged first; among equal pairs, the leftmost.
// Symbols must not be -1.
void append_merged(const MergeTable& merges, const std::int32_t* symbols, std::size_t count, std::vector<std::int64_t>& out) {
  if (count <= longest_short)
    append_short(merges, symbols, count, out);
  else
    append_long(merges, symbols, count, out);
}

// One merge of a byte pair model, by ids.
struct MergedPair {
  std::int32_t left, right, id;
};

// Knows how the merges build each token, which determines which tokens may be adjacent. A sequence of tokens is the result of the merges
// for its text if and only if two conditions hold: the merges build each token from the token's own text, and in the joined text of two
// neighboring tokens no merge crosses the border between them. It is enough to check pairs of neighbors, because the merges act inside a
// token as they do on that token's text alone. So the first merge across a border would also happen in the joined text of the two tokens
// at this border.
class TokenSplits {
 public:
  TokenSplits() = default;
  // `merges` is in the order of ranks. `table` holds the same merges. `symbols` are the ids that words consist of before any
  // merge.
  TokenSplits(const std::vector<MergedPair>& merges, const MergeTable& table, const std::vector<std::int32_t>& symbols) {
    std::int32_t largest = 0;
    for (const std::int32_t symbol : symbols) largest = std::max(largest, symbol);
    for (const MergedPair& merge : merges) largest = std::max({largest, merge.left, merge.right, merge.id});
    splits_.resize(static_cast<std::size_t>(largest) + 1);
    for (const std::int32_t symbol : symbols) splits_[static_cast<std::size_t>(symbol)].rank = -1;
    usable_ = read(merges, table);
  }

  // Returns whether this class can be used with these merges. It cannot be used if the only merge that builds some token comes before the
  // merge that builds one of this token's two parts.
  bool usable() const { return usable_; }
  // Returns whether the merges build this token from its text.
  bool is_made(std::int32_t id) const {
    return static_cast<std::size_t>(id) < splits_.size() && splits_[static_cast<std::size_t>(id)].rank != MergeTable::no_rank;
  }
  // Returns whether the merges below rank `limit` turn the joined text of two tokens into exactly these two tokens. is_made()
  // must be true for both.
  bool stay_apart(const MergeTable& table, std::int32_t left, std::int32_t right, std::int32_t limit = MergeTable::no_rank) const {
    while (table.find(left, right).rank >= limit) {
      const Split &first = splits_[static_cast<std::size_t>(left)], &second = splits_[static_cast<std::size_t>(right)];
      if (first.rank < 0 && second.rank < 0) return true;
      // Undoes the later of the two merges that built the left and the right token. If both merges have the same rank, the right token's
      // merge is the later one, because equal merges happen from left to right.
      if (first.rank > second.rank) {
        limit = first.rank;
        left = first.right;
      } else {
        limit = second.rank + 1;
        right = second.left;
      }
    }
    return false;
  }

 private:
  struct Split {
    std::int32_t rank = MergeTable::no_rank;  // rank of the merge that builds the token; -1: the token is a symbol
    std::int32_t left = -1, right = -1;
  };
  bool read(const std::vector<MergedPair>& merges, const MergeTable& table) {
    std::vector<std::size_t> early;  // merges that use a token which is neither a symbol nor built by an earlier merge
    for (std::size_t i = 0; i < merges.size(); ++i) {
      const MergedPair& merge = merges[i];
      const auto rank = static_cast<std::int32_t>(i);
      if (table.find(merge.left, merge.right).rank != rank) continue;  // a later merge of the same pair replaces this one
      Split& made = splits_[static_cast<std::size_t>(merge.id)];
      if (made.rank < 0) return false;
      if (!is_made(merge.left) || !is_made(merge.right)) {
        early.push_back(i);
        continue;
      }
      if (made.rank != MergeTable::no_rank || !stay_apart(table, merge.left, merge.right, rank)) continue;
      made = {rank, merge.left, merge.right};
    }
    // Each token has only one split. So an early merge changes nothing if other merges already build its result. An early merge also
    // changes nothing if its two tokens are never adjacent.
    return std::none_of(early.begin(), early.end(), [&](std::size_t i) {
      const MergedPair& merge = merges[i];
      return !is_made(merge.id) && is_made(merge.left) && is_made(merge.right) && stay_apart(table, merge.left, merge.right, static_cast<std::int32_t>(i));
    });
  }

  bool usable_ = false;
  std::vector<Split> splits_;  // each token's split, by token id
};

struct Settings {
  std::string unknown, prefix, suffix;
  bool fuse_unknown, byte_fallback, ignore_merges, bytes;
  std::string origin;
};

/// Byte pair encoding. The characters of a word become symbols, which are merged pair by pair in the order of the merges.
class Bpe {
 public:
  Bpe(const Tokens& tokens, const std::vector<MergedPair>& merges, Settings settings)
      : settings_(std::move(settings)), merges_(merges.size()) {
    for (std::size_t rank = 0; rank < merges.size(); ++rank)
      merges_.insert(merges[rank].left, merges[rank].right, static_cast<std::int32_t>(rank), merges[rank].id);
    if (!settings_.unknown.empty()) unknown_ = tokens.find(settings_.unknown);
    for (unsigned byte = 0; byte < 256; ++byte) byte_tokens_[byte] = tokens.find(byte_token(static_cast<std::uint8_t>(byte)));
    read_tokens(tokens);
    if (rows_of_characters(merges)) splits_ = TokenSplits(merges, merges_, symbols_of(tokens));
  }

  void append(std::string_view word, std::vector<std::int64_t>& out) const {
    if (settings_.ignore_merges)
      if (const std::int32_t id = whole_.find(word); id != ByteTrie::none) return out.push_back(id);
    thread_local std::vector<std::int32_t> symbols;
    if (!splits_.usable()) {
      read_symbols(word, symbols);
      return append_merged(merges_, symbols.data(), symbols.size(), out);
    }
    for (std::size_t begin = 0; begin < word.size();) {
      if (is_known(word, begin)) {
        begin += append_row(word.substr(begin), out);
        continue;
      }
      std::size_t end = begin;
      while (end < word.size() && !is_known(word, end)) end += length_of_symbol(word[end]);
      read_symbols(word.substr(begin, end - begin), symbols);
      out.insert(out.end(), symbols.begin(), symbols.end());
      begin = end;
    }
  }

 private:
  /// Returns whether append_row() may be used with this model. This requires that unknown characters become tokens (and are not dropped),
  /// that these tokens never merge, and that a token has the same spelling everywhere in a word (no prefix and no suffix).
  bool rows_of_characters(const std::vector<MergedPair>& merges) const {
    if (affixes_) return false;
    const auto none = [](std::int32_t id) { return id < 0; };
    const bool bytes_known = settings_.bytes && std::none_of(single_[0].begin(), single_[0].end(), none);
    const bool spelled_in_bytes = settings_.byte_fallback && std::none_of(byte_tokens_.begin(), byte_tokens_.end(), none);
    if (settings_.unknown.empty() && !bytes_known && !spelled_in_bytes) return false;
    std::unordered_set<std::int32_t> for_unknown = {unknown_};
    if (settings_.byte_fallback) for_unknown.insert(byte_tokens_.begin(), byte_tokens_.end());
    return std::none_of(merges.begin(), merges.end(), [&](const MergedPair& merge) { return for_unknown.contains(merge.left) || for_unknown.contains(merge.right); });
  }

  struct Step {
    std::int32_t id;
    std::size_t begin;
  };

  /// Appends the tokens of the text up to its first unknown character, and returns that character's position. The first
  /// character must be known. Takes at each position the longest token that may follow the previous one. If there is none,
  /// backtracks and takes a shorter token at an earlier position. Each prefix of the text has exactly one encoding, so a
  /// position that led to a dead end is never tried again.
  std::size_t append_row(std::string_view text, std::vector<std::int64_t>& out) const {
    thread_local std::vector<Step> row;
    thread_local std::vector<bool> dead;
    row.clear();
    dead.assign(text.size() + 1, false);
    std::size_t at = 0;
    ByteTrie::Found next = whole_.longest(text);
    for (bool known = true; known;) {
      while (next.number != ByteTrie::none && (dead[at + next.length] || !fits(row, next.number)))
        next = whole_.longest(text.substr(at, next.length - 1));
      if (next.number != ByteTrie::none) {
        row.push_back({next.number, at});
        at += next.length;
        if (at == text.size()) break;
        next = whole_.longest(text.substr(at));
        known = splits_.is_made(next.number) || is_known(text, at);  // a token made by merges has only known characters
      } else {
        // impossible, because every known character is a token
        if (row.empty()) throw std::logic_error("tokenizer_json: a text without tokens");
        dead[at] = true;
        next = {at - row.back().begin, row.back().id};
        at = row.back().begin;
        row.pop_back();
      }
    }
    for (const Step& step : row) out.push_back(step.id);
    return at;
  }

  bool fits(const std::vector<Step>& row, std::int32_t id) const {
    return splits_.is_made(id) && (row.empty() || splits_.stay_apart(merges_, row.back().id, id));
  }

  std::size_t length_of_symbol(char first) const { return settings_.bytes ? 1 : length_of(first); }

  /// Returns whether the vocabulary has the character at position `at` of a word. Used only if the settings have no prefix and
  /// no suffix.
  bool is_known(std::string_view word, std::size_t at) const { return symbol_of(word.substr(at, length_of_symbol(word[at])), 0) >= 0; }

  /// Returns a number from 0 to 3: 2 if a character is the first of its word, plus 1 if the character is the last.
  static std::size_t place_of(bool first, bool last) { return (first ? 2U : 0U) + (last ? 1U : 0U); }

  void read_symbols(std::string_view word, std::vector<std::int32_t>& symbols) const {
    symbols.clear();
    std::int32_t pending = -1;  // an unknown token that is not yet in `symbols`, because the next character may be fused with it; -1: none
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t begin = at;
      at += length_of_symbol(word[at]);
      const std::size_t place = place_of(begin == 0, at == word.size());
      const std::int32_t id = symbol_of(word.substr(begin, at - begin), place);
      if (id >= 0) {
        if (pending >= 0) symbols.push_back(std::exchange(pending, -1));
        symbols.push_back(id);
        continue;
      }
      if (settings_.byte_fallback && append_bytes(spelled(word.substr(begin, at - begin), place), symbols)) continue;
      if (settings_.unknown.empty()) continue;
      if (unknown_ < 0) user_error(settings_.origin, ": a character is not in its vocab, and neither is its unk_token");
      if (pending >= 0 && !settings_.fuse_unknown) symbols.push_back(pending);
      pending = unknown_;
    }
    if (pending >= 0) symbols.push_back(pending);
  }

  std::int32_t symbol_of(std::string_view character, std::size_t place) const {
    const auto byte = static_cast<std::uint8_t>(character[0]);
    if (settings_.bytes || byte < 0x80) return single_[place][byte];
    return affixes_ ? whole_.find(spelled(character, place)) : whole_.find(character);
  }

  /// Returns a character as the vocabulary writes it, including the prefix or suffix for its place in the word (see place_of()).
  std::string spelled(std::string_view character, std::size_t place) const {
    std::string out;
    if (place < 2) out = settings_.prefix;
    if (settings_.bytes)
      append_byte_characters(character, out);
    else
      out += character;
    if (place % 2 == 1) out += settings_.suffix;
    return out;
  }

  bool append_bytes(std::string_view text, std::vector<std::int32_t>& ids) const {
    const auto id_of = [&](char c) { return byte_tokens_[static_cast<std::uint8_t>(c)]; };
    if (std::any_of(text.begin(), text.end(), [&](char c) { return id_of(c) < 0; })) return false;
    for (const char c : text) ids.push_back(id_of(c));
    return true;
  }

  void read_tokens(const Tokens& tokens) {
    affixes_ = !settings_.prefix.empty() || !settings_.suffix.empty();
    for (std::size_t place = 0; place < 4; ++place)
      for (unsigned byte = 0; byte < (settings_.bytes ? 256U : 128U); ++byte) {
        const char c = static_cast<char>(byte);
        single_[place][byte] = tokens.find(spelled(std::string_view(&c, 1), place));
      }
    if (settings_.bytes && affixes_ && !settings_.ignore_merges) return;  // then nothing uses `whole_` (CLIP)
    ByteTrie::Texts texts;
    for (const auto& [token, id] : tokens.ids)
      if (const auto text = settings_.bytes ? bytes_of_characters(token) : token) texts.emplace_back(*text, id);
    whole_ = ByteTrie(std::move(texts));
  }

  /// Returns the ids of all tokens that are single characters or bytes. Used only if the settings have no prefix and no suffix.
  std::vector<std::int32_t> symbols_of(const Tokens& tokens) const {
    std::vector<std::int32_t> out;
    if (settings_.bytes) {
      out.assign(single_[0].begin(), single_[0].end());
      std::erase(out, -1);
      return out;
    }
    for (const auto& [token, id] : tokens.ids)
      if (!token.empty() && length_of(token[0]) == token.size()) out.push_back(id);
    return out;
  }

  Settings settings_;
  MergeTable merges_;
  TokenSplits splits_;
  ByteTrie whole_;  // the texts of all tokens; in a byte-level model, the bytes that these texts stand for
  bool affixes_ = false;
  std::array<std::array<std::int32_t, 256>, 4> single_{};  // ids of ASCII characters or bytes: [place_of()][character or byte]
  std::array<std::int32_t, 256> byte_tokens_{};
  std::int32_t unknown_ = -1;
};

/// Returns the two tokens of a merge, written as "a b" or ["a", "b"].
std::optional<std::pair<std::string, std::string>> parts_of(const nlohmann::json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return std::pair{merge[0].get<std::string>(), merge[1].get<std::string>()};
  if (!merge.is_string()) return std::nullopt;
  const auto text = merge.get<std::string>();
  const std::size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) return std::nullopt;
  return std::pair{text.substr(0, space), text.substr(space + 1)};
}

std::vector<MergedPair> read_merges(const nlohmann::json& merges, const Tokens& tokens, std::size_t prefix, const std::string& origin) {
  std::vector<MergedPair> out;
  out.reserve(merges.size());
  for (const nlohmann::json& merge : merges) {
    const auto parts = parts_of(merge);
    if (!parts) user_error(origin, ": merge ", out.size(), " is not a pair of tokens");
    const auto& [left, right] = *parts;
    const std::int32_t both = right.size() < prefix ? -1 : tokens.find(left + right.substr(prefix));
    const MergedPair pair{tokens.find(left), tokens.find(right), both};
    if (pair.left < 0 || pair.right < 0 || pair.id < 0)
      user_error(origin, ": merge ", out.size(), " (", shown(left), ", ", shown(right), ") joins tokens that its vocab lacks");
    out.push_back(pair);
  }
  return out;
}

}  // namespace

ModelPart make_bpe(const nlohmann::json& json, bool bytes, const std::string& origin) {
  const Part part(json, "model", origin);
  part.allow({"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges",
              "vocab", "merges"});
  if (json.contains("dropout") && json.at("dropout").is_number() && json.at("dropout").get<double>() > 0)
    user_error(origin, ": its model's dropout is not supported");
  if (!json.contains("merges") || !json.at("merges").is_array()) user_error(origin, ": its model has no merges: the file is damaged");
  Tokens tokens = read_vocabulary(json, origin);
  Settings settings{part.text("unk_token", ""), part.text("continuing_subword_prefix", ""), part.text("end_of_word_suffix", ""),
                    part.flag("fuse_unk", false), part.flag("byte_fallback", false), part.flag("ignore_merges", false), bytes, origin};
  const std::vector<MergedPair> merges = read_merges(json.at("merges"), tokens, settings.prefix.size(), origin);
  Model model = cached(std::make_shared<const Bpe>(tokens, merges, std::move(settings)));
  return {std::move(model), std::move(tokens)};
}

}  // namespace tessera::json_tokenizer
