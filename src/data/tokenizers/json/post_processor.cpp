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

SpecialEnds read_template(const Part& part) {
  part.allow({"single", "pair", "special_tokens"});
  SpecialEnds out;
  int texts = 0;
  for (const nlohmann::json& piece : part.at("single")) {
    if (piece.contains("Sequence")) {
      if (piece.at("Sequence").at("id") != "A") part.refuse("expects a second text");
      ++texts;
      continue;
    }
    std::vector<std::int64_t>& end = texts > 0 ? out.behind : out.before;
    const std::vector<std::int64_t> ids = ids_of_special(part, piece.at("SpecialToken"));
    end.insert(end.end(), ids.begin(), ids.end());
  }
  if (texts != 1) part.refuse("must name the text exactly once");
  return out;
}

SpecialEnds read_pair_of_tokens(const Part& part) {
  part.allow({"sep", "cls", "trim_offsets", "add_prefix_space"});
  return {{id_of_pair(part, "cls")}, {id_of_pair(part, "sep")}};
}

/// Reads a part into `out`; only one part may add tokens.
void read_part(const nlohmann::json& described, const std::string& origin, int depth, SpecialEnds& out) {
  constexpr int deepest = 16;
  const Part part(described, "post_processor", origin);
  if (part.type() == "Sequence") {
    part.allow({"processors"});
    if (depth == deepest) part.refuse("is nested too deeply");
    for (const nlohmann::json& each : part.at("processors")) read_part(each, origin, depth + 1, out);
    return;
  }
  if (part.type() == "ByteLevel") return part.allow({"add_prefix_space", "trim_offsets", "use_regex"});
  const bool pair = part.type() == "RobertaProcessing" || part.type() == "BertProcessing";
  if (!pair && part.type() != "TemplateProcessing") part.unknown();
  const SpecialEnds own = pair ? read_pair_of_tokens(part) : read_template(part);
  if (out.size() > 0) part.refuse("adds tokens although another part does so already, which is not supported");
  out = own;
}

}  // namespace

SpecialEnds read_post_processor(const nlohmann::json& json, const std::string& origin) {
  SpecialEnds out;
  if (!json.is_null()) read_part(json, origin, 0, out);
  return out;
}

}  // namespace tessera::json_tokenizer
