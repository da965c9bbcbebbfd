#include "src/data/tokenizers/json/pipeline.h"

#include <algorithm>
#include <limits>
#include <set>

#include "src/data/tokenizers/json/characters.h"
#include "src/data/tokenizers/json/part.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::json_tokenizer {
namespace {

constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();

const nlohmann::json& member(const nlohmann::json& file, const char* key) {
  static const nlohmann::json null;
  return file.contains(key) ? file.at(key) : null;
}

void check_members(const nlohmann::json& file, const std::string& origin) {
  static const std::set<std::string> known = {"version", "truncation", "padding", "added_tokens", "normalizer",
                                              "pre_tokenizer", "post_processor", "decoder", "model"};
  for (const auto& [key, value] : file.items())
    if (!known.contains(key)) user_error(origin, ": its part ", shown(key), " is not supported");
  if (file.contains("version") && file.at("version") != "1.0") user_error(origin, ": has a version other than 1.0, which is not supported");
}

}  // namespace

Pipeline::Pipeline(const nlohmann::json& file, const std::string& origin)
    : normalizer_(make_normalizer(member(file, "normalizer"), origin)),
      splitting_(make_pre_tokenizer(member(file, "pre_tokenizer"), reads_bytes(member(file, "model")), origin)),
      model_(make_model(member(file, "model"), splitting_.bytes, origin)),
      added_(member(file, "added_tokens"), model_.tokens, normalizer_, origin),
      ends_(read_post_processor(member(file, "post_processor"), origin)),
      decoder_(make_decoder(member(file, "decoder"), origin)),
      longest_(no_limit) {
  check_members(file, origin);
  read_truncation(member(file, "truncation"), origin);
  check_padding(member(file, "padding"), origin);
  read_names(file, model_.tokens);
  model_.tokens = {};
}

void Pipeline::read_truncation(const nlohmann::json& truncation, const std::string& origin) {
  if (truncation.is_null()) return;
  const auto refuse = [&](const std::string& what) { user_error(origin, ": its truncation ", what, ", which is not supported"); };
  if (!truncation.is_object()) refuse("is not an object");
  for (const auto& [key, value] : truncation.items())
    if (key != "direction" && key != "max_length" && key != "strategy" && key != "stride") refuse("has " + shown(key));
  const std::string direction = truncation.value("direction", "Right"), strategy = truncation.value("strategy", "LongestFirst");
  if (direction != "Right" && direction != "Left") refuse("has the direction " + shown(direction));
  if (strategy != "LongestFirst" && strategy != "OnlyFirst") refuse("has the strategy " + shown(strategy));
  if (!truncation.contains("max_length") || !truncation.at("max_length").is_number_unsigned()) refuse("has no max_length");
  longest_ = truncation.at("max_length").get<std::size_t>();
  keeps_end_ = direction == "Left";
}

void Pipeline::check_padding(const nlohmann::json& padding, const std::string& origin) {
  if (padding.is_null()) return;
  if (!padding.is_object() || !padding.contains("pad_id") || !padding.at("pad_id").is_number_unsigned()) user_error(origin, ": its padding has no pad_id");
  for (const auto& [key, value] : padding.items())
    if (key != "strategy" && key != "direction" && key != "pad_to_multiple_of" && key != "pad_id" && key != "pad_type_id" && key != "pad_token")
      user_error(origin, ": ", shown(key), " of its padding is not supported");
  if (padding.value("direction", "Right") != "Right")
    user_error(origin,
               ": pads on the left, which is not supported: if its model expects padding on the right, set padding.direction to Right");
}

void Pipeline::read_names(const nlohmann::json& file, const Tokens& tokens) {
  for (const auto& [token, id] : tokens.ids) keep(token, id);
  for (const AddedToken& token : added_.list()) {
    keep(token.content, token.id);
    if (token.special) special_ids_.push_back(token.id);
  }
  std::sort(special_ids_.begin(), special_ids_.end());
  for (const std::vector<std::int64_t>* ids : {&ends_.before, &ends_.behind})
    for (const std::int64_t id : *ids)
      if (id >= size()) tokens_.resize(static_cast<std::size_t>(id) + 1);
  const nlohmann::json& suffix = member(member(file, "model"), "end_of_word_suffix");
  if (suffix.is_string()) word_end_ = suffix.get<std::string>();
}

void Pipeline::keep(const std::string& token, std::int64_t id) {
  if (id >= size()) tokens_.resize(static_cast<std::size_t>(id) + 1);
  tokens_[static_cast<std::size_t>(id)] = token;
}

std::vector<std::int64_t> Pipeline::encode(std::string_view text, std::size_t most) const {
  return encode_into(std::min(most, longest_), text);
}

std::vector<std::int64_t> Pipeline::encode_whole(std::string_view text) const {
  return encode_into(no_limit, text);
}

std::vector<std::int64_t> Pipeline::encode_into(std::size_t room, std::string_view text) const {
  thread_local std::vector<AddedPart> parts;
  const std::size_t limit = room - std::min(room, ends_.size());
  std::vector<std::int64_t> ids;
  ids.reserve(std::min(room, text.size() + ends_.size()) + 8);
  ids = ends_.before;
  const std::size_t first = ids.size();
  const std::size_t enough = keeps_end_ ? no_limit : first + limit;
  parts.clear();
  added_.find(text, /*normalized=*/false, parts);
  for (const AddedPart& part : parts) {
    if (ids.size() >= enough) break;
    if (part.id >= 0)
      ids.push_back(part.id);
    else
      encode_part(text.substr(part.begin, part.end - part.begin), part.begin == 0 ? length_of(text[0]) : 0, enough, ids);
  }
  if (ids.size() > first + limit) {
    const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(first), end = begin + static_cast<std::ptrdiff_t>(ids.size() - first - limit);
    if (keeps_end_)
      ids.erase(begin, end);
    else
      ids.resize(first + limit);
  }
  ids.insert(ids.end(), ends_.behind.begin(), ends_.behind.end());
  if (ids.size() > room) ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(room));
  return ids;
}

void Pipeline::encode_part(std::string_view text, std::size_t head, std::size_t limit, std::vector<std::int64_t>& ids) const {
  struct Room {
    Segment segment;
    std::string spare;
    std::vector<AddedPart> parts;
    Pieces pieces, spare_pieces;
  };
  thread_local Room room;
  room.segment.text.assign(text);
  room.segment.head = head;
  normalizer_(room.segment, room.spare);
  room.parts.clear();
  added_.find(room.segment.text, /*normalized=*/true, room.parts);
  for (const AddedPart& part : room.parts) {
    if (ids.size() >= limit) return;
    if (part.id >= 0) {
      ids.push_back(part.id);
      continue;
    }
    Pieces& pieces = room.pieces;
    pieces.text.assign(room.segment.text, part.begin, part.end - part.begin);
    pieces.pieces.assign(1, {0, pieces.text.size(), room.segment.head - std::min(room.segment.head, part.begin)});
    splitting_.split(pieces, room.spare_pieces);
    for (const Piece& piece : pieces.pieces) {
      if (ids.size() >= limit) return;
      const std::string_view word = pieces.of(piece);
      if (const std::int32_t id = added_.find_piece(word); id >= 0)
        ids.push_back(id);
      else
        model_.encode(word, ids);
    }
  }
}

std::string Pipeline::decode(const std::vector<std::int64_t>& ids) const {
  std::vector<std::string> tokens;
  for (const std::int64_t id : ids)
    if (!std::binary_search(special_ids_.begin(), special_ids_.end(), id)) tokens.push_back(tokens_[static_cast<std::size_t>(id)]);
  decoder_(tokens);
  std::string out;
  for (const std::string& token : tokens) out += token;
  for (std::size_t at = word_end_.empty() ? std::string::npos : out.find(word_end_); at != std::string::npos; at = out.find(word_end_, at + 1))
    out.replace(at, word_end_.size(), " ");
  return repair_utf8(strip(out));
}

}  // namespace tessera::json_tokenizer
