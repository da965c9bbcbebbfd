#include <nlohmann/json.hpp>

#include "src/data/tokenizers/byte_pairs.h"
#include "src/data/tokenizers/json/assembled.h"
#include "src/data/tokenizers/json/characters.h"
#include "src/data/tokenizers/published_tokenizer.h"
#include "src/data/tokenizers/tokenizer_json.h"
#include "src/data/tokenizers/unicode.h"
#include "src/data/tokenizers/vocabulary_file.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

using nlohmann::json;

constexpr const char *kStart = "<|startoftext|>", *kEnd = "<|endoftext|>", *kWordEnd = "</w>";

json special_token(const char* content, std::int64_t id) {
  return {{"id", id},        {"content", content}, {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

/// Returns a tokenizer.json with CLIP's byte pairs, in the format that Hugging Face's tokenizers library reads.
json clip_tokenizer_json(const std::string& merges_text) {
  json vocabulary, merges = json::array();
  std::int64_t id = 0;
  std::vector<std::string> characters;
  for (const std::uint8_t byte : bytes_in_order())
    unicode::append_utf8(characters.emplace_back(), json_tokenizer::character_of_byte(byte));
  for (const std::string& character : characters) vocabulary[character] = id++;
  for (const std::string& character : characters) vocabulary[character + kWordEnd] = id++;
  const std::vector<std::string> lines = split(merges_text, '\n');
  for (std::int64_t rank = 0; rank < BytePairs::merge_count; ++rank) {
    const std::vector<std::string> pair = split(std::string(strip(lines.at(static_cast<std::size_t>(rank + 1)))), ' ');
    merges.push_back({pair.at(0), pair.at(1)});
    vocabulary[pair.at(0) + pair.at(1)] = id++;
  }
  vocabulary[kStart] = BytePairs::start_id;
  vocabulary[kEnd] = BytePairs::end_id;
  const json ends = {{"type", "RobertaProcessing"}, {"sep", json::array({kEnd, BytePairs::end_id})},
                     {"cls", json::array({kStart, BytePairs::start_id})}, {"trim_offsets", false}, {"add_prefix_space", false}};
  const json model = {{"type", "BPE"}, {"dropout", nullptr}, {"unk_token", kEnd}, {"continuing_subword_prefix", ""},
                      {"end_of_word_suffix", kWordEnd}, {"fuse_unk", false}, {"byte_fallback", false}, {"ignore_merges", false},
                      {"vocab", vocabulary}, {"merges", merges}};
  return {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr},
          {"added_tokens", {special_token(kStart, BytePairs::start_id), special_token(kEnd, BytePairs::end_id)}},
          {"normalizer", json_tokenizer::clip_normalizer()}, {"pre_tokenizer", json_tokenizer::clip_pre_tokenizer()},
          {"post_processor", ends}, {"decoder", json_tokenizer::byte_level(false)}, {"model", model}};
}

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
  const json tokenizer = clip_tokenizer_json(decompressed({file.vocabulary, "the model's vocabulary"}));
  return {{"tokenizer.json", tokenizer.dump()}, {"tokenizer_config.json", config.dump(2) + "\n"}};
}

}  // namespace tessera
