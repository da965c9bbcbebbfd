#include "src/data/tokenizers/merged_pairs.h"

#include <algorithm>
#include <array>
#include <queue>

#include <tessera/base/error.h>

namespace tessera {
namespace {

std::string text_or_empty(const nlohmann::json& json, const char* key) {
  return json.contains(key) && json.at(key).is_string() ? json.at(key).get<std::string>() : "";
}

bool flag(const nlohmann::json& json, const char* key) {
  return json.contains(key) && json.at(key).is_boolean() && json.at(key).get<bool>();
}

std::string byte_token(unsigned char byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + ">";
}

std::size_t character_length(unsigned char first) {
  return first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

}  // namespace

MergedPairs::MergedPairs(const nlohmann::json& model, const std::string& origin)
    : word_end_(text_or_empty(model, "end_of_word_suffix")),
      fuse_unknown_(flag(model, "fuse_unk")),
      byte_fallback_(flag(model, "byte_fallback")),
      ignore_merges_(flag(model, "ignore_merges")) {
  if (!text_or_empty(model, "continuing_subword_prefix").empty())
    user_error(origin, ": its model's continuing_subword_prefix is not known here");
  if (!model.contains("vocab") || !model.at("vocab").is_object() || !model.contains("merges") || !model.at("merges").is_array())
    user_error(origin, ": its model has no vocab or merges: the file is damaged");
  for (const auto& [token, id] : model.at("vocab").items()) {
    if (!id.is_number_integer()) user_error(origin, ": the id of ", token, " is no number");
    vocabulary_.emplace(token, id.get<std::int64_t>());
  }
  const std::string unknown = text_or_empty(model, "unk_token");
  if (!unknown.empty()) unknown_ = id_of(unknown);
  read_merges(model.at("merges"), origin);
}

void MergedPairs::read_merges(const nlohmann::json& merges, const std::string& origin) {
  std::int32_t rank = 0;
  merges_.reserve(merges.size());
  for (const nlohmann::json& merge : merges) {
    std::string left, right;
    if (merge.is_string()) {
      const auto text = merge.get<std::string>();
      const std::size_t space = text.find(' ');
      if (space != std::string::npos) {
        left = text.substr(0, space);
        right = text.substr(space + 1);
      }
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    }
    const auto a = id_of(left), b = id_of(right), both = id_of(left + right);
    if (!a || !b || !both) user_error(origin, ": merge ", rank, " (", merge.dump(), ") joins tokens that its vocab lacks");
    merges_.emplace(pair_of(*a, *b), Merge{rank, static_cast<std::int32_t>(*both)});
    ++rank;
  }
}

std::optional<std::int64_t> MergedPairs::id_of(const std::string& token) const {
  const auto found = vocabulary_.find(token);
  return found == vocabulary_.end() ? std::nullopt : std::optional(found->second);
}

// A piece's characters as ids: those that the vocabulary lacks as their bytes, or as the unknown token.
std::vector<std::int64_t> MergedPairs::characters(std::string_view piece) const {
  std::vector<std::int64_t> out;
  bool unknown_before = false;
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t length = std::min(character_length(static_cast<unsigned char>(piece[at])), piece.size() - at);
    const std::string character(piece.substr(at, length));
    at += length;
    const auto whole = id_of(at == piece.size() ? character + word_end_ : character);
    std::vector<std::int64_t> ids;
    if (whole) ids = {*whole};
    if (!whole && byte_fallback_) {
      for (const char byte : character)
        if (const auto id = id_of(byte_token(static_cast<unsigned char>(byte)))) ids.push_back(*id);
      if (ids.size() != character.size()) ids.clear();
    }
    const bool unknown = ids.empty();
    if (unknown && unknown_ && !(fuse_unknown_ && unknown_before)) ids = {*unknown_};
    unknown_before = unknown;
    out.insert(out.end(), ids.begin(), ids.end());
  }
  return out;
}

void MergedPairs::encode(std::string_view piece, std::vector<std::int64_t>& out) const {
  if (ignore_merges_)
    if (const auto whole = id_of(std::string(piece))) return out.push_back(*whole);
  struct Symbol {
    std::int64_t id;
    std::int32_t previous, next;  // -1: none
    bool gone;
  };
  struct Candidate {
    std::int32_t rank, place;
    std::uint64_t pair;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : place > other.place;
    }
  };
  const std::vector<std::int64_t> ids = characters(piece);
  std::vector<Symbol> symbols;
  for (std::int32_t i = 0; i < std::ssize(ids); ++i)
    symbols.push_back({ids[static_cast<std::size_t>(i)], i - 1, i + 1 < std::ssize(ids) ? i + 1 : -1, false});
  const auto symbol = [&](std::int32_t place) -> Symbol& { return symbols[static_cast<std::size_t>(place)]; };
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](std::int32_t place) {
    if (place < 0 || symbol(place).next < 0) return;
    const std::uint64_t pair = pair_of(symbol(place).id, symbol(symbol(place).next).id);
    if (const auto found = merges_.find(pair); found != merges_.end()) queue.push({found->second.rank, place, pair});
  };
  for (std::int32_t i = 0; i < std::ssize(symbols); ++i) consider(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbol(best.place);
    if (left.gone || left.next < 0 || pair_of(left.id, symbol(left.next).id) != best.pair) continue;
    Symbol& right = symbol(left.next);
    left.id = merges_.at(best.pair).id;
    right.gone = true;
    left.next = right.next;
    if (left.next >= 0) symbol(left.next).previous = best.place;
    consider(left.previous);
    consider(best.place);
  }
  for (const Symbol& one : symbols)
    if (!one.gone) out.push_back(one.id);
}

}  // namespace tessera
