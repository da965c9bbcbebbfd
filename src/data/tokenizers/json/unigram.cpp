#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "src/data/tokenizers/json/byte_trie.h"
#include "src/data/tokenizers/json/characters.h"
#include "src/data/tokenizers/json/model.h"
#include "src/data/tokenizers/json/part.h"
#include "src/data/tokenizers/json/word_cache.h"
#include <tessera/base/error.h>

namespace tessera::json_tokenizer {
namespace {

constexpr double unknown_penalty = 10.0;

/// Finds the tokens with the largest sum of scores by the Viterbi algorithm. Text that no token covers is unknown.
class Unigram {
 public:
  Unigram(const std::vector<std::pair<std::string, double>>& vocabulary, std::int32_t unknown, bool byte_fallback, std::string origin)
      : unknown_(unknown), origin_(std::move(origin)) {
    double lowest = std::numeric_limits<double>::infinity();
    ByteTrie::Texts texts;
    for (const auto& [token, score] : vocabulary) {
      texts.emplace_back(token, static_cast<std::int32_t>(scores_.size()));
      scores_.push_back(score);
      lowest = std::min(lowest, score);
    }
    tokens_ = ByteTrie(std::move(texts));
    unknown_score_ = lowest - unknown_penalty;
    for (unsigned byte = 0; byte < 256; ++byte) bytes_[byte] = byte_fallback ? tokens_.find(byte_token(static_cast<std::uint8_t>(byte))) : ByteTrie::none;
  }

  void append(std::string_view text, std::vector<std::int64_t>& out) const {
    thread_local std::vector<Way> ways;
    ways.assign(text.size() + 1, {});
    for (std::size_t at = 0; at < text.size(); at += length_of(text[at])) add_tokens(text, at, ways);
    const std::size_t before = out.size();
    for (std::size_t end = text.size(); end > 0;) {
      const std::size_t begin = ways[end].id == unknown_ ? begin_of_unknown(ways, end) : end - ways[end].length;
      if (ways[end].id == unknown_)
        append_unknown(text.substr(begin, end - begin), out);
      else
        out.push_back(ways[end].id);
      end = begin;
    }
    std::reverse(out.begin() + static_cast<std::ptrdiff_t>(before), out.end());
  }

 private:
  /// The best tokenization of the text up to a position.
  struct Way {
    double score = 0;
    std::uint32_t length = 0;  // length of the last token; 0: no tokenization ends at this position
    std::int32_t id = 0;
  };

  void add_tokens(std::string_view text, std::size_t at, std::vector<Way>& ways) const {
    const double here = ways[at].score;
    const std::size_t character = length_of(text[at]);
    bool covered = false;  // whether the character at `at` is a token by itself
    const auto consider = [&](std::size_t length, std::int32_t id, double score) {
      Way& way = ways[at + length];
      const double candidate = score + here;
      if (way.length == 0 || candidate > way.score) way = {candidate, static_cast<std::uint32_t>(length), id};
    };
    tokens_.prefixes(text.substr(at), [&](std::size_t length, std::int32_t id) {
      consider(length, id, scores_[static_cast<std::size_t>(id)]);
      covered |= length == character;
    });
    if (covered) return;
    const Way& way = ways[at + character];
    if (way.length != 0 && !(unknown_score_ + here > way.score)) return;
    if (unknown_ < 0) user_error(origin_, ": a character is not in its vocab, and it has no unk_id");
    consider(character, unknown_, unknown_score_);
  }

  // Returns the start of the unknown characters before `end`. Consecutive unknown characters count as one token.
  std::size_t begin_of_unknown(const std::vector<Way>& ways, std::size_t end) const {
    while (end > 0 && ways[end].id == unknown_) end -= ways[end].length;
    return end;
  }

  // Appends in reverse order, because the ids of the whole text are reversed at the end.
  void append_unknown(std::string_view text, std::vector<std::int64_t>& out) const {
    if (const std::int32_t id = tokens_.find(text); id != ByteTrie::none) return out.push_back(id);
    const auto id_of = [&](char c) { return bytes_[static_cast<std::uint8_t>(c)]; };
    if (std::any_of(text.begin(), text.end(), [&](char c) { return id_of(c) == ByteTrie::none; })) return out.push_back(unknown_);
    for (std::size_t i = text.size(); i > 0; --i) out.push_back(id_of(text[i - 1]));
  }

  ByteTrie tokens_;
  std::vector<double> scores_;
  std::array<std::int32_t, 256> bytes_{};
  std::int32_t unknown_;
  double unknown_score_;
  std::string origin_;
};

double power_of_ten(int exponent) {
  double out = 1;  // from_chars() sets `out` to the double nearest to 10^exponent, as in the reference's table of powers
  const std::string text = "1e" + std::to_string(exponent);
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

/// Returns a score as the reference parses it. The reference reads the digits as an integer and multiplies or divides it by a power of ten,
/// so the result is not always the nearest double. Comparisons of nearly equal sums of scores depend on this.
double as_read_there(double score) {
  std::array<char, 40> text;  // NOLINT: written by to_chars
  const double size = std::abs(score);
  const char* const end = std::to_chars(text.data(), text.data() + text.size(), size, std::chars_format::scientific).ptr;
  std::uint64_t digits = 0;
  int exponent = 0, behind_point = 0;
  const char* at = text.data();
  for (bool point = false; at != end && *at != 'e'; ++at) {
    if (*at == '.') {
      point = true;
      continue;
    }
    digits = 10 * digits + static_cast<std::uint64_t>(*at - '0');
    behind_point += point ? 1 : 0;
  }
  if (at == end) return score;  // without an exponent, the text is "inf" or "nan"
  at += at[1] == '+' ? 2 : 1;
  std::from_chars(at, end, exponent);
  exponent -= behind_point;
  if (std::abs(exponent) > 300) return score;
  const double power = power_of_ten(std::abs(exponent)), whole = static_cast<double>(digits);
  return std::copysign(exponent >= 0 ? whole * power : whole / power, score);
}

}  // namespace

ModelPart make_unigram(const nlohmann::json& json, const std::string& origin) {
  const Part part(json, "model", origin);
  part.allow({"unk_id", "vocab", "byte_fallback"});
  if (!json.contains("vocab") || !json.at("vocab").is_array()) user_error(origin, ": its model has no vocab: the file is damaged");
  std::vector<std::pair<std::string, double>> vocabulary;
  Tokens tokens;
  for (const nlohmann::json& entry : json.at("vocab")) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
      user_error(origin, ": entry ", vocabulary.size(), " of its vocab is not a pair of a token and a score");
    vocabulary.emplace_back(entry[0].get<std::string>(), as_read_there(entry[1].get<double>()));
    tokens.ids.insert_or_assign(vocabulary.back().first, static_cast<std::int32_t>(tokens.count++));
  }
  std::int32_t unknown = -1;
  if (part.has("unk_id")) {
    const nlohmann::json& id = json.at("unk_id");
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= vocabulary.size()) user_error(origin, ": its model's unk_id is not in its vocab");
    unknown = id.get<std::int32_t>();
  }
  Model model = cached(std::make_shared<const Unigram>(vocabulary, unknown, part.flag("byte_fallback", false), origin));
  return {std::move(model), std::move(tokens)};
}

}  // namespace tessera::json_tokenizer
