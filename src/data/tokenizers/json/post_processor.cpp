#include "src/data/tokenizers/json/pipeline.h"

#include "src/data/tokenizers/json/part.h"
#include <tessera/base/error.h>

namespace tessera::json_tokenizer {
namespace {

std::int64_t checked_id(const nlohmann::json& id, const Part& part) {
  constexpr std::uint64_t most = 1 << 24;
  if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= most) part.refuse("has a token without an id");
  return id.get<std::int64_t>();
}

std::int64_t id_of_pair(const Part& part, const char* key) {
  const nlohmann::json& pair = part.at(key);
  if (!pair.is_array() || pair.size() != 2) part.refuse("has a " + std::string(key) + " that is not a pair of a token and its id");
  return checked_id(pair[1], part);
}

/// Returns the ids of a special token, such as [CLS], that a template names.
std::vector<std::int64_t> ids_of_special(const Part& part, const nlohmann::json& piece) {
  const auto name = piece.at("id").get<std::string>();
  const nlohmann::json& tokens = part.at("special_tokens");
  if (!tokens.contains(name)) part.refuse("names the token " + shown(name) + ", which its special_tokens lack");
  std::vector<std::int64_t> out;
  for (const nlohmann::json& id : tokens.at(name).at("ids")) out.push_back(checked_id(id, part));
  return out;
}

/// Sets the special tokens of a text. Only one part may do so.
void set_ends(const Part& part, SpecialEnds own, SpecialEnds& out) {
  if (out.size() > 0) part.refuse("adds tokens although another part does so already, which is not supported");
  out = std::move(own);
}

void add_template(const Part& part, SpecialEnds& out) {
  SpecialEnds own;
  int texts = 0;
  for (const nlohmann::json& piece : part.at("single")) {
    if (piece.contains("Sequence")) {
      if (piece.at("Sequence").at("id") != "A") part.refuse("expects a second text");
      ++texts;
      continue;
    }
    std::vector<std::int64_t>& end = texts > 0 ? own.behind : own.before;
    const std::vector<std::int64_t> ids = ids_of_special(part, piece.at("SpecialToken"));
    end.insert(end.end(), ids.begin(), ids.end());
  }
  if (texts != 1) part.refuse("must name the text exactly once");
  set_ends(part, std::move(own), out);
}

void add_pair(const Part& part, SpecialEnds& out) {
  set_ends(part, {{id_of_pair(part, "cls")}, {id_of_pair(part, "sep")}}, out);
}

}  // namespace

SpecialEnds read_post_processor(const nlohmann::json& json, const std::string& origin) {
  static const Keys of_pair = {"sep", "cls", "trim_offsets", "add_prefix_space"};
  static const std::vector<PartType<SpecialEnds>> types = {
      {"ByteLevel", {"add_prefix_space", "trim_offsets", "use_regex"}, [](const Part&, SpecialEnds&) {}},
      {"RobertaProcessing", of_pair, add_pair},
      {"BertProcessing", of_pair, add_pair},
      {"TemplateProcessing", {"single", "pair", "special_tokens"}, add_template}};
  SpecialEnds out;
  if (!json.is_null()) read_part(json, "post_processor", "processors", types, origin, out);
  return out;
}

}  // namespace tessera::json_tokenizer
