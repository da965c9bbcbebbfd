#include "src/data/tokenizers/json/assembled.h"

#include <filesystem>
#include <optional>

#include <nlohmann/json.hpp>

#include "src/data/tokenizers/json/part.h"
#include "src/data/tokenizers/sentencepiece_model.h"
#include "src/data/tokenizers/tokenizer_config.h"
#include <tessera/base/digest.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/io/stand_in.h>

namespace tessera::json_tokenizer {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

/// Builds a tokenizer.json around a `model`.
class File {
 public:
  File(json model, std::string path) : path_(std::move(path)) {
    if (model.at("vocab").is_object())
      for (const auto& [token, id] : model.at("vocab").items()) ids_[token] = id;
    else
      for (std::size_t i = 0; i < model.at("vocab").size(); ++i) ids_[model.at("vocab")[i][0].get<std::string>()] = i;
    file_ = {{"version", "1.0"}, {"added_tokens", json::array()}, {"model", std::move(model)}};
  }

  /// Adds a special token for each of the names that the vocabulary contains.
  void add_special(const std::vector<std::string>& names) {
    for (const std::string& name : names)
      if (ids_.contains(name)) file_["added_tokens"].push_back({{"id", ids_.at(name)}, {"content", name}, {"special", true}, {"normalized", false}});
  }
  void set(const char* part, json value) { file_[part] = std::move(value); }
  bool has(const std::string& token) const { return ids_.contains(token); }

  json pair_of(const std::string& token) const { return json::array({token, id_of(token)}); }
  /// Sets the template that adds special tokens to a text. In `pieces`, "$A" is the text; the others are special tokens.
  void set_template(const std::vector<std::string>& pieces) {
    json single = json::array(), tokens = json::object();
    for (const std::string& piece : pieces) {
      if (piece == "$A") {
        single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
        continue;
      }
      single.push_back({{"SpecialToken", {{"id", piece}, {"type_id", 0}}}});
      tokens[piece] = {{"id", piece}, {"ids", json::array({id_of(piece)})}, {"tokens", json::array({piece})}};
    }
    set("post_processor", {{"type", "TemplateProcessing"}, {"single", single}, {"pair", json::array()}, {"special_tokens", tokens}});
  }
  std::string text() const { return file_.dump(); }

 private:
  json id_of(const std::string& token) const {
    if (!ids_.contains(token)) user_error(path_, ": has no token ", shown(token));
    return ids_.at(token);
  }

  std::string path_;
  json ids_ = json::object(), file_;
};

json read_merges(const std::string& path) {
  if (!fs::is_regular_file(path)) user_error(path, ": is missing: vocab.json needs it in the same folder");
  json out = json::array();
  for (std::string& line : split_lines(io::read_data_file(path))) {
    if (line.empty() || line.starts_with("#version")) continue;
    if (!is_utf8(line)) user_error(path, ": line ", out.size() + 2, " is not UTF-8");
    out.push_back(std::move(line));
  }
  return out;
}

void finish_clip(File& file, const TokenizerConfig& config) {
  const std::string begin = config.token("bos_token", "<|startoftext|>"), end = config.token("eos_token", "<|endoftext|>");
  file.set("normalizer", clip_normalizer());
  file.set("pre_tokenizer", clip_pre_tokenizer());
  file.set("post_processor", {{"type", "RobertaProcessing"}, {"sep", file.pair_of(end)}, {"cls", file.pair_of(begin)}});
  file.add_special({begin, end, config.token("pad_token", "<|endoftext|>"), config.token("unk_token", "<|endoftext|>")});
}

void finish_roberta(File& file, const TokenizerConfig& config) {
  const std::string begin = config.token("cls_token", "<s>"), end = config.token("sep_token", "</s>");
  if (file.has(begin) && file.has(end))
    file.set("post_processor", {{"type", "RobertaProcessing"}, {"sep", file.pair_of(end)}, {"cls", file.pair_of(begin)}});
  file.set("pre_tokenizer", byte_level(config.flag("add_prefix_space", false)));
  file.add_special({begin, config.token("pad_token", "<pad>"), end, config.token("unk_token", "<unk>"), config.token("mask_token", "<mask>"), "<|endoftext|>"});
}

std::string of_byte_pairs(const std::string& path, const std::string& bytes) {
  const TokenizerConfig config(fs::path(path).parent_path().string());
  json merges = read_merges((fs::path(path).parent_path() / "merges.txt").string());
  bool clip = false;
  for (const json& merge : merges) clip = clip || merge.get<std::string>().ends_with("</w>");
  json model = {{"type", "BPE"}, {"vocab", parse_json_object(bytes, path)}, {"merges", std::move(merges)}};
  if (clip) model.update({{"end_of_word_suffix", "</w>"}, {"unk_token", config.token("unk_token", "<|endoftext|>")}});
  File file(std::move(model), path);
  file.set("decoder", byte_level(true));
  if (clip)
    finish_clip(file, config);
  else
    finish_roberta(file, config);
  return file.text();
}

std::string of_word_pieces(const std::string& path, const std::string& bytes) {
  if (!is_utf8(bytes)) user_error(path, ": is not UTF-8; expected BERT's vocab.txt, one piece per line");
  const TokenizerConfig config(fs::path(path).parent_path().string());
  json vocabulary = json::object();
  const std::vector<std::string> lines = split_lines(bytes);
  for (std::size_t i = 0; i < lines.size(); ++i) vocabulary[lines[i]] = i;
  const std::string unknown = config.token("unk_token", "[UNK]"), begin = config.token("cls_token", "[CLS]"), end = config.token("sep_token", "[SEP]");
  File file({{"type", "WordPiece"}, {"unk_token", unknown}, {"continuing_subword_prefix", "##"}, {"max_input_chars_per_word", 100}, {"vocab", vocabulary}}, path);
  const bool lower = config.flag("do_lower_case", true);
  file.set("normalizer", {{"type", "BertNormalizer"},
                          {"clean_text", true},
                          {"handle_chinese_chars", config.flag("tokenize_chinese_chars", true)},
                          {"strip_accents", config.flag("strip_accents", lower)},
                          {"lowercase", lower}});
  file.set("pre_tokenizer", {{"type", "BertPreTokenizer"}});
  file.set("decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}});
  file.set_template({begin, "$A", end});
  file.add_special({config.token("pad_token", "[PAD]"), unknown, begin, end, config.token("mask_token", "[MASK]")});
  return file.text();
}

/// Returns XLM-RoBERTa's vocabulary. It starts with four tokens of its own, in place of the SentencePiece model's first three,
/// and ends with <mask>.
json xlm_roberta_vocabulary(const SentencePieceParts& parts) {
  json out = json::array({{"<s>", 0.0}, {"<pad>", 0.0}, {"</s>", 0.0}, {"<unk>", 0.0}});
  for (std::size_t i = 3; i < parts.pieces.size(); ++i) out.push_back({parts.pieces[i].text, parts.pieces[i].score});
  out.push_back({"<mask>", 0.0});
  return out;
}

json t5_vocabulary(const SentencePieceParts& parts, int extra) {
  json out = json::array();
  for (const auto& piece : parts.pieces) out.push_back({piece.text, piece.score});
  for (int i = extra - 1; i >= 0; --i) out.push_back({"<extra_id_" + std::to_string(i) + ">", 0.0});
  return out;
}

std::string of_sentence_pieces(const std::string& path, const std::string& bytes, bool xlm_roberta) {
  constexpr int extra_ids = 100;
  const std::optional<SentencePieceParts> parts = read_sentencepiece(bytes);
  if (!parts) user_error(path, ": is not a SentencePiece model, or damaged (", bytes.size(), " bytes)");
  if (parts->model_type != 1)
    user_error(path, ": is a SentencePiece model of a type other than unigram, which cannot be converted to a tokenizer.json");
  json vocabulary = xlm_roberta ? xlm_roberta_vocabulary(*parts) : t5_vocabulary(*parts, extra_ids);
  File file({{"type", "Unigram"}, {"unk_id", xlm_roberta ? 3 : 2}, {"vocab", std::move(vocabulary)}, {"byte_fallback", false}}, path);
  if (!parts->normalization.empty())
    file.set("normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", base64_encode(parts->normalization)}});
  const json metaspace = {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "always"}, {"split", true}};
  file.set("pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", json::array({{{"type", "WhitespaceSplit"}}, metaspace})}});
  file.set("decoder", metaspace);
  if (xlm_roberta)
    file.set_template({"<s>", "$A", "</s>"});
  else
    file.set_template({"$A", "</s>"});
  std::vector<std::string> special = {"<s>", "<pad>", "</s>", "<unk>", "<mask>"};
  for (int i = 0; i < (xlm_roberta ? 0 : extra_ids); ++i) special.push_back("<extra_id_" + std::to_string(i) + ">");
  file.add_special(special);
  return file.text();
}

}  // namespace

json byte_level(bool prefix_space) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", prefix_space}, {"trim_offsets", true}, {"use_regex", true}};
}

json clip_normalizer() {
  return {{"type", "Sequence"},
          {"normalizers", json::array({{{"type", "NFC"}},
                                       {{"type", "Replace"}, {"pattern", {{"Regex", "\\s+"}}}, {"content", " "}},
                                       {{"type", "Lowercase"}}})}};
}

json clip_pre_tokenizer() {
  const char* pieces = R"(<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+)";
  const json by_pattern = {{"type", "Split"}, {"pattern", {{"Regex", pieces}}}, {"behavior", "Removed"}, {"invert", true}};
  return {{"type", "Sequence"}, {"pretokenizers", json::array({by_pattern, byte_level(false)})}};
}

std::string assembled(const std::string& path, std::string bytes) {
  const std::string name = fs::path(path).filename().string();
  if (name == "vocab.json") return of_byte_pairs(path, bytes);
  if (name == "vocab.txt") return of_word_pieces(path, bytes);
  if (name.ends_with(".model")) return of_sentence_pieces(path, bytes, name == "sentencepiece.bpe.model");
  return bytes;
}

}  // namespace tessera::json_tokenizer
