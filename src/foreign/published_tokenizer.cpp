#include "src/foreign/published_tokenizer.h"

#include <filesystem>
#include <map>

#include <nlohmann/json.hpp>

#include "src/data/tokenizers/engine_tokenizers.h"
#include "src/data/tokenizers/json/assembled.h"
#include "src/data/tokenizers/sentencepiece.h"
#include "src/data/tokenizers/tokenizer_config.h"
#include "src/data/tokenizers/vocabulary_file.h"
#include "src/io/stand_in.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

/// Returns the id of a token in a tokenizer.json, or -1 if the token is not there.
std::int64_t id_of(const json& file, const std::string& token) {
  for (const json& added : file.value("added_tokens", json::array()))
    if (added.value("content", "") == token) return added.value("id", std::int64_t{-1});
  const json vocabulary = file.value("model", json::object()).value("vocab", json());
  if (vocabulary.is_object()) return vocabulary.value(token, std::int64_t{-1});
  for (std::size_t i = 0; i < vocabulary.size(); ++i)
    if (vocabulary[i].is_array() && !vocabulary[i].empty() && vocabulary[i][0] == token) return static_cast<std::int64_t>(i);
  return -1;
}

/// Returns the padding token that tokenizer_config.json names or, if it names none, that of its class; empty if the class has none.
std::string pad_token_of(const TokenizerConfig& config) {
  static const std::map<std::string, std::string> of_classes = {
      {"CLIPTokenizer", "<|endoftext|>"}, {"SiglipTokenizer", "</s>"}, {"BertTokenizer", "[PAD]"},       {"DistilBertTokenizer", "[PAD]"},
      {"Siglip2Tokenizer", "<pad>"},      {"GemmaTokenizer", "<pad>"}, {"XLMRobertaTokenizer", "<pad>"}, {"RobertaTokenizer", "<pad>"},
      {"T5Tokenizer", "<pad>"}};
  const auto of_class = of_classes.find(config.type());
  return config.token("pad_token", of_class == of_classes.end() ? "" : of_class->second);
}

/// Throws UserError if texts are padded on the left although the model reads the padding.
void check_padding(const ForeignModel& foreign, const std::string& side, const std::string& path) {
  if (foreign.padding_is_text && (side == "left" || side == "Left"))
    user_error(path, ": pads texts on the left, and this model reads the padding: our tokenizers pad on the right");
}

/// Returns the padding id: the id of the padding token, or otherwise the padding id in tokenizer.json itself.
std::int64_t pad_id_of(const json& file, const TokenizerConfig& config) {
  const std::string token = pad_token_of(config);
  const std::int64_t named = token.empty() ? -1 : id_of(file, token);
  if (named >= 0) return named;
  const json padding = file.value("padding", json());
  return padding.is_object() ? padding.value("pad_id", std::int64_t{0}) : 0;
}

std::string separator_of(const TokenizerConfig& config) {
  return config.token("sep_token", "[SEP]");
}

FolderTokenizer of_tokenizer_json(const ForeignModel& foreign, std::int64_t context_length, const TokenizerConfig& config, const std::string& path) {
  TokenizerJsonSettings settings;
  settings.context_length = context_length;
  settings.pad_is_text = foreign.padding_is_text;
  if (!foreign.cleanup.empty()) settings.cleanup = foreign.cleanup;
  std::string bytes = json_tokenizer::assembled(path, io::read_data_file(path));
  const json file = parse_json_object(bytes, path);
  try {
    settings.pad_id = pad_id_of(file, config);
    const json padding = file.value("padding", json());
    check_padding(foreign, config.token("padding_side", padding.is_object() ? padding.value("direction", "") : ""), path);
    if (foreign.separator_is_padding) {
      settings.zero_id = id_of(file, separator_of(config));
      if (settings.zero_id < 0) user_error(path, ": has no token ", separator_of(config), ", which strip_sep_token replaces by 0");
    }
  } catch (const json::exception& error) {
    user_error(path, ": is not a tokenizer.json, or is damaged: ", error.what());
  }
  return {{"tokenizer_json", config::dump(settings)}, path, std::move(bytes)};
}

FolderTokenizer of_sentencepiece(const ForeignModel& foreign, std::int64_t context_length, const TokenizerConfig& config, const std::string& path) {
  const bool siglip = path.ends_with("/spiece.model");
  if (foreign.separator_is_padding) user_error(path, ": has no separator, which strip_sep_token replaces by 0");
  SentencePieceSettings settings;
  settings.context_length = context_length;
  settings.pad_is_text = foreign.padding_is_text;
  const char* own = !siglip ? "none" : config.flag("do_lower_case", true) ? "siglip" : "siglip_cased";
  settings.cleanup = foreign.cleanup == "canonicalize" ? "canonicalize" : own;
  settings.pad_id = pad_token_of(config) == "</s>" ? 1 : 0;
  check_padding(foreign, config.token("padding_side", ""), path);
  if (!siglip) {  // not SigLIP's spiece.model, so this is a tokenizer.model of Llama or Gemma
    settings.add_bos = config.flag("add_bos_token", true);
    settings.add_eos = config.flag("add_eos_token", false);
  }
  return {{"sentencepiece", config::dump(settings)}, path, io::read_data_file(path)};
}

/// Returns whether a spiece.model is T5's. Otherwise it is SigLIP's, which needs its own cleanup.
bool is_t5(const TokenizerConfig& config) {
  return config.type().find("T5") != std::string::npos;
}

}  // namespace

std::optional<FolderTokenizer> tokenizer_of_folder(const ForeignModel& foreign, const std::string& folder) {
  if (!foreign.tokenizer_in_folder || !foreign.model.text) return std::nullopt;
  const config::Node* length = foreign.model.text->encoder.settings.find("context_length");
  const auto context_length = config::Value<std::int64_t>::read(*length, folder, 0);
  const TokenizerConfig config(folder);
  std::vector<const char*> names = {"tokenizer.json",          "vocab.json",   "vocab.txt",
                                    "sentencepiece.bpe.model", "spiece.model", "tokenizer.model"};
  if (config.type() == "SiglipTokenizer") names.insert(names.begin(), "spiece.model");  // the class reads nothing else
  for (const char* name : names) {
    const std::string path = folder + "/" + name;
    if (!fs::is_regular_file(path)) continue;
    const std::string_view kind = name;
    const bool library = kind == "tokenizer.model" || (kind == "spiece.model" && !is_t5(config));
    return library ? of_sentencepiece(foreign, context_length, config, path) : of_tokenizer_json(foreign, context_length, config, path);
  }
  user_error(folder, ": has a text tower, but neither tokenizer.json nor spiece.model (nor vocab.json, vocab.txt, tokenizer.model): also "
                     "fetch the tokenizer's files");
}

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
  if (name == "wordpiece" && library == "tokenizers") {
    const json tokenizer = wordpiece_tokenizer_json(file.vocabulary, text_at(file.tokenizer, "lower_case") != "false", "the model's vocabulary");
    return {{"tokenizer.json", tokenizer.dump()}};
  }
  if (name != "clip-bpe" || library == "open_clip") return {};
  config.update({{"tokenizer_class", "CLIPTokenizer"}, {"bos_token", kStart}, {"eos_token", kEnd}, {"unk_token", kEnd}, {"pad_token", kEnd}});
  const json tokenizer = clip_tokenizer_json(decompressed({file.vocabulary, "the model's vocabulary"}), "the model's vocabulary", kStart, kEnd);
  return {{"tokenizer.json", tokenizer.dump()}, {"tokenizer_config.json", config.dump(2) + "\n"}};
}

}  // namespace tessera
