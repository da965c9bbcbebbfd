#include "src/data/tokenizers/json/added_tokens.h"

#include <algorithm>

#include "src/data/tokenizers/json/characters.h"
#include "src/data/tokenizers/json/part.h"
#include <tessera/base/error.h>

namespace tessera::json_tokenizer {
namespace {

AddedToken read_token(const nlohmann::json& json, const std::string& origin) {
  if (!json.is_object() || !json.contains("content") || !json.at("content").is_string()) user_error(origin, ": an added token has no content");
  AddedToken token{json.at("content").get<std::string>(), -1, false, false, false, false, true, false};
  for (const auto& [key, value] : json.items()) {
    if (key == "id" || key == "content") continue;
    bool* const flag = key == "special"       ? &token.special
                       : key == "single_word" ? &token.single_word
                       : key == "lstrip"      ? &token.lstrip
                       : key == "rstrip"      ? &token.rstrip
                       : key == "normalized"  ? &token.normalized
                       : key == "whole_piece" ? &token.whole_piece
                                              : nullptr;
    if (flag == nullptr) user_error(origin, ": ", shown(key), " of the added token ", shown(token.content), " is not supported");
    if (!value.is_boolean()) user_error(origin, ": ", key, " of the added token ", shown(token.content), " is neither true nor false");
    *flag = value.get<bool>();
  }
  return token;
}

}  // namespace

AddedTokens::AddedTokens(const nlohmann::json& json, const Tokens& tokens, const Normalizer& normalizer, const std::string& origin) {
  if (!json.is_null() && !json.is_array()) user_error(origin, ": its added_tokens are not a list");
  auto next = static_cast<std::int32_t>(tokens.count);
  std::unordered_map<std::string, std::int32_t> ids;
  for (const nlohmann::json& each : json) {
    AddedToken token = read_token(each, origin);
    if (token.content.empty()) continue;
    const auto known = ids.find(token.content);
    token.id = known != ids.end() ? known->second : tokens.find(token.content);
    if (token.id < 0) token.id = next++;
    ids[token.content] = token.id;
    const auto same = std::ranges::find(tokens_, token.id, &AddedToken::id);  // of several tokens with one id, the last one counts
    (same == tokens_.end() ? tokens_.emplace_back() : *same) = std::move(token);
  }
  build(normalizer);
}

void AddedTokens::build(const Normalizer& normalizer) {
  ByteTrie::Texts plain, normalized, pieces;
  std::string spare;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i].whole_piece) {
      pieces.emplace_back(tokens_[i].content, tokens_[i].id);
      continue;
    }
    Segment segment{tokens_[i].content};
    if (tokens_[i].normalized) normalizer(segment, spare);
    (tokens_[i].normalized ? normalized : plain).emplace_back(segment.text, static_cast<std::int32_t>(i));
  }
  const auto make = [](ByteTrie::Texts texts) {
    Matcher out;
    for (const auto& [text, number] : texts)
      if (!text.empty() && !out.first[static_cast<std::uint8_t>(text[0])]) {
        out.first[static_cast<std::uint8_t>(text[0])] = true;
        out.firsts += text[0];
      }
    out.trie = ByteTrie(std::move(texts));
    return out;
  };
  plain_ = make(std::move(plain));
  normalized_ = make(std::move(normalized));
  pieces_ = ByteTrie(std::move(pieces));
}

bool AddedTokens::stands_alone(std::string_view text, std::size_t begin, std::size_t end) const {
  if (begin > 0 && (class_of(code_at(text, before(text, begin))) & word) != 0) return false;
  return end == text.size() || (class_of(code_at(text, end)) & word) == 0;
}

namespace {

/// Returns the first position at or after `at` whose byte is the first byte of a token; if there is none, the text's size. `firsts` lists
/// each byte with which a token starts; `first[byte]` is true for these bytes.
std::size_t next_place(std::string_view text, std::size_t at, const std::vector<bool>& first, const std::string& firsts) {
  if (firsts.size() == 1) return std::min(text.find(firsts[0], at), text.size());
  while (at < text.size() && !first[static_cast<std::uint8_t>(text[at])]) ++at;
  return at;
}

std::size_t begin_of_space(std::string_view text, std::size_t end) {
  while (end > 0) {
    const std::size_t last = before(text, end);
    if ((class_of(code_at(text, last)) & white_space) == 0) break;
    end = last;
  }
  return end;
}

}  // namespace

void AddedTokens::find(std::string_view text, bool normalized, std::vector<AddedPart>& out) const {
  const Matcher& matcher = normalized ? normalized_ : plain_;
  std::size_t behind = 0;  // end of the previous token
  if (!matcher.firsts.empty()) {
    for (std::size_t at = next_place(text, 0, matcher.first, matcher.firsts); at < text.size();
         at = next_place(text, at, matcher.first, matcher.firsts)) {
      const ByteTrie::Found found = matcher.trie.longest(text.substr(at));
      if (found.number == ByteTrie::none) {
        ++at;
        continue;
      }
      const AddedToken& token = tokens_[static_cast<std::size_t>(found.number)];
      std::size_t begin = at, end = at + found.length;
      at = end;
      if (token.single_word && !stands_alone(text, begin, end)) continue;
      if (token.lstrip) begin = std::max(begin_of_space(text, begin), behind);
      if (token.rstrip) end = end_of_row(text, end, white_space);
      if (behind < begin) out.push_back({behind, begin, -1});
      // A token of white space can lie inside the previous token, so that `begin` is at or after `end`. Such a token is skipped.
      if (begin < end) out.push_back({begin, end, token.id});
      behind = end;
    }
  }
  if (behind != text.size()) out.push_back({behind, text.size(), -1});
}

}  // namespace tessera::json_tokenizer
