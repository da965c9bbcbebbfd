#include "src/data/tokenizers/published_tokenizer.h"

#include <nlohmann/json.hpp>

#include "src/data/tokenizers/clip_bpe.h"
#include "src/data/tokenizers/tokenizer_json.h"
#include "src/data/tokenizers/vocabulary_file.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

using nlohmann::json;

constexpr const char *kStart = "<|startoftext|>", *kEnd = "<|endoftext|>";

std::string text_at(const config::ModuleSettings& settings, const char* key) {
  const config::Node* found = settings.settings.find(key);
  return found == nullptr ? "" : found->text();
}

}  // namespace

std::string take_published_tokenizer(const ForeignModel& foreign, const std::string& folder, ModelFile& file) {
  if (!foreign.tokenizer_in_folder) return {};
  try {
    const auto found = tokenizer_of_folder(foreign, folder);
    if (!found) return {};
    tokenizers().make(found->settings, "tokenizer", TokenizerContext{found->vocabulary, folder});
    file.tokenizer = found->settings;
    file.vocabulary = found->vocabulary;
  } catch (const UserError& error) {
    return error.what();
  }
  return {};
}

std::map<std::string, std::string> published_tokenizer_files(const ModelFile& file, const std::string& library) {
  const std::string& name = file.tokenizer.name;
  if (file.vocabulary.empty() || !file.model.text) return {};
  const std::string length = text_at(file.tokenizer, "context_length");
  json config = {{"model_max_length", length.empty() ? 77 : std::stoll(length)}};
  if (name == "tokenizer_json") {
    config["tokenizer_class"] = "PreTrainedTokenizerFast";
    const json tokenizer = json::parse(file.vocabulary, nullptr, /*allow_exceptions=*/false);
    const std::string pad_id = text_at(file.tokenizer, "pad_id");
    if (tokenizer.is_object())
      for (const json& token : tokenizer.value("added_tokens", json::array()))
        if (token.value("id", -1) == (pad_id.empty() ? 0 : std::stoll(pad_id))) config["pad_token"] = token.value("content", "");
    return {{"tokenizer.json", file.vocabulary}, {"tokenizer_config.json", config.dump(2) + "\n"}};
  }
  if (name == "sentencepiece") {
    config["tokenizer_class"] = "SiglipTokenizer";
    config["pad_token"] = text_at(file.tokenizer, "pad_id") == "1" ? "</s>" : "<pad>";
    return {{"spiece.model", file.vocabulary}, {"tokenizer_config.json", config.dump(2) + "\n"}};
  }
  if (name != "clip-bpe" || library == "open_clip") return {};
  config.update({{"tokenizer_class", "CLIPTokenizer"}, {"bos_token", kStart}, {"eos_token", kEnd}, {"unk_token", kEnd}, {"pad_token", kEnd}});
  const json tokenizer = clip_tokenizer_json(decompressed({file.vocabulary, "the model's vocabulary"}), "the model's vocabulary", kStart, kEnd);
  return {{"tokenizer.json", tokenizer.dump()}, {"tokenizer_config.json", config.dump(2) + "\n"}};
}

}  // namespace tessera
