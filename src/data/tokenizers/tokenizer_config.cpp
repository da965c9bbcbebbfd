#include "src/data/tokenizers/tokenizer_config.h"

#include <filesystem>
#include <map>

#include <tessera/base/error.h>
#include <tessera/io/atomic_file.h>

namespace tessera {

nlohmann::json parse_json_object(const std::string& text, const std::string& path) {
  nlohmann::json out = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!out.is_object()) user_error(path, ": is not a JSON object: the file is damaged");
  return out;
}

TokenizerConfig::TokenizerConfig(const std::string& folder)
    : path_((std::filesystem::path(folder) / "tokenizer_config.json").string()) {
  if (std::filesystem::is_regular_file(path_)) values_ = parse_json_object(io::read_file(path_), path_);
  const std::string model = (std::filesystem::path(folder) / "config.json").string();
  if (!std::filesystem::is_regular_file(model)) return;
  const nlohmann::json config = nlohmann::json::parse(io::read_file(model), nullptr, /*allow_exceptions=*/false);
  const auto type = config.find("model_type");
  if (type != config.end() && type->is_string()) model_type_ = type->get<std::string>();
}

bool TokenizerConfig::flag(const char* key, bool otherwise) const {
  const auto found = values_.find(key);
  if (found == values_.end() || found->is_null()) return otherwise;
  if (!found->is_boolean()) user_error(path_, ": ", key, " is neither true nor false");
  return found->get<bool>();
}

std::string TokenizerConfig::token(const char* key, const std::string& otherwise) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return otherwise;
  const nlohmann::json& text = found->is_object() && found->contains("content") ? found->at("content") : *found;
  return text.is_string() ? text.get<std::string>() : otherwise;
}

std::string TokenizerConfig::type() const {
  static const std::map<std::string, std::string> of_models = {
      {"clip", "CLIPTokenizer"},       {"clip_text_model", "CLIPTokenizer"}, {"siglip", "SiglipTokenizer"},   {"bert", "BertTokenizer"},
      {"roberta", "RobertaTokenizer"}, {"xlm-roberta", "XLMRobertaTokenizer"}, {"metaclip_2", "XLMRobertaTokenizer"}};
  if (model_type_ == "siglip2") return "Siglip2Tokenizer";  // whatever the file says, as in transformers
  const auto of_model = of_models.find(model_type_);
  std::string name = token("tokenizer_class", of_model == of_models.end() ? "" : of_model->second);
  if (name.ends_with("Fast") && name != "PreTrainedTokenizerFast") name.resize(name.size() - 4);
  return name;
}

}  // namespace tessera
