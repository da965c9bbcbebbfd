#include "src/data/tokenizers/json/assembled.h"

#include <filesystem>
#include <map>
#include <set>

#include <nlohmann/json.hpp>
#include <sentencepiece_processor.h>

#include "src/base/digest.h"
#include "src/data/tokenizers/json/part.h"
#include "src/data/tokenizers/sentencepiece_model.h"
#include "src/io/stand_in.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::json_tokenizer {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

/// A tokenizer.json whose parts are being set.
class File {
 public:
  File(json file, std::string path) : path_(std::move(path)), file_(std::move(file)) {
    const json& vocabulary = file_.at("model").at("vocab");
    if (vocabulary.is_object())
      ids_ = vocabulary;
    else
      for (std::size_t i = 0; i < vocabulary.size(); ++i) ids_[vocabulary[i][0].get<std::string>()] = i;
    if (!file_.contains("added_tokens")) file_["added_tokens"] = json::array();
    for (const json& token : file_.at("added_tokens")) added_.insert(token.at("content").get<std::string>());
  }
  static File around(json model, const std::string& path) {
    json file = {{"version", "1.0"}};
    file["model"] = std::move(model);
    return {std::move(file), path};
  }

  /// Adds a special token for each of the names that the vocabulary contains.
  void add_special(const std::vector<std::string>& names) {
    for (const std::string& name : names)
      if (ids_.contains(name) && added_.insert(name).second)
        file_["added_tokens"].push_back({{"id", ids_.at(name)}, {"content", name}, {"special", true}, {"normalized", false}});
  }
  void set_model(const json& values) { file_["model"].update(values); }
  void set(const char* part, json value) { file_[part] = std::move(value); }
  const json& get(const char* part) const { return file_[part]; }
  bool has(const std::string& token) const { return ids_.contains(token); }

  /// Sets the two special tokens that RoBERTa and CLIP add to a text.
  void set_pair(const std::string& begin, const std::string& end) {
    const auto pair_of = [&](const std::string& token) { return json::array({token, id_of(token)}); };
    set("post_processor", {{"type", "RobertaProcessing"}, {"sep", pair_of(end)}, {"cls", pair_of(begin)}});
  }
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
  bool is(const json& other) const { return file_ == other; }
  std::string text() const { return file_.dump(); }
  json value() && { return std::move(file_); }

 private:
  json id_of(const std::string& token) const {
    if (!ids_.contains(token)) user_error(path_, ": has no token ", shown(token));
    return ids_.at(token);
  }

  std::string path_;
  json ids_ = json::object(), file_;
  std::set<std::string> added_;
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
  const std::string begin = config.token("bos_token", "<|startoftext|>"), end = config.token("eos_token", "<|endoftext|>"),
                    unknown = config.token("unk_token", "<|endoftext|>");
  file.set_model({{"end_of_word_suffix", "</w>"}, {"unk_token", unknown}, {"fuse_unk", false}, {"byte_fallback", false}});
  file.set("normalizer", clip_normalizer());
  file.set("pre_tokenizer", clip_pre_tokenizer());
  file.set_pair(begin, end);
  file.add_special({begin, end, config.token("pad_token", "<|endoftext|>"), unknown});
}

void finish_gpt2(File& file, const TokenizerConfig& config) {
  file.set("normalizer", nullptr);
  file.set("pre_tokenizer", byte_level(config.flag("add_prefix_space", false)));
  file.add_special({config.token("eos_token", "<|endoftext|>")});
}

void finish_roberta(File& file, const TokenizerConfig& config) {
  const std::string begin = config.token("cls_token", "<s>"), end = config.token("sep_token", "</s>");
  if (file.has(begin) && file.has(end)) file.set_pair(begin, end);
  finish_gpt2(file, config);
  file.add_special({begin, config.token("pad_token", "<pad>"), end, config.token("unk_token", "<unk>"),
                    config.token("mask_token", "<mask>")});
}

void finish_gemma(File& file, const TokenizerConfig& config) {
  const json spaces = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
  const std::string unknown = config.token("unk_token", "<unk>");
  file.set_model({{"unk_token", unknown}, {"fuse_unk", true}, {"byte_fallback", true}});
  const json lower_case = {{"type", "Lowercase"}};
  const bool siglip2 = config.type() == "Siglip2Tokenizer";
  file.set("normalizer", siglip2 ? json{{"type", "Sequence"}, {"normalizers", json::array({lower_case, spaces})}} : spaces);
  file.set("pre_tokenizer", {{"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "MergedWithPrevious"}, {"invert", false}});
  file.add_special({config.token("pad_token", "<pad>"), config.token("eos_token", "<eos>"), config.token("bos_token", "<bos>"), unknown});
}

void finish_bert(File& file, const TokenizerConfig& config) {
  const std::string unknown = config.token("unk_token", "[UNK]"), begin = config.token("cls_token", "[CLS]"),
                    end = config.token("sep_token", "[SEP]");
  file.set_model({{"unk_token", unknown}, {"continuing_subword_prefix", "##"}, {"max_input_chars_per_word", 100U}});
  const bool lower = config.flag("do_lower_case", true);
  file.set("normalizer", {{"type", "BertNormalizer"},
                          {"clean_text", true},
                          {"handle_chinese_chars", config.flag("tokenize_chinese_chars", true)},
                          {"strip_accents", config.flag("strip_accents", lower)},
                          {"lowercase", lower}});
  file.set("pre_tokenizer", {{"type", "BertPreTokenizer"}});
  file.set_template({begin, "$A", end});
  file.add_special({config.token("pad_token", "[PAD]"), unknown, begin, end, config.token("mask_token", "[MASK]")});
}

json metaspace(bool prefix_space) {
  return {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", prefix_space ? "always" : "never"}, {"split", true}};
}

/// Sets the parts that XLM-RoBERTa and T5 have in common. Of a normalizer, transformers keeps only SentencePiece's own rules.
void finish_unigram(File& file, int unknown, bool prefix_space) {
  const json before = file.get("normalizer");
  json rules = nullptr;
  for (const json& each : before.is_object() && before.contains("normalizers") ? before.at("normalizers") : json::array({before}))
    if (rules.is_null() && each.is_object() && each.value("type", "") == "Precompiled") rules = each;
  file.set_model({{"unk_id", unknown}, {"byte_fallback", false}});
  file.set("normalizer", rules);
  const json words = {{"type", "WhitespaceSplit"}};
  file.set("pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", json::array({words, metaspace(prefix_space)})}});
}

void finish_xlm_roberta(File& file, const TokenizerConfig& config) {
  finish_unigram(file, 3, config.flag("add_prefix_space", true));
  const std::string begin = config.token("bos_token", "<s>"), end = config.token("eos_token", "</s>");
  file.set_template({begin, "$A", end});
  file.add_special({begin, config.token("pad_token", "<pad>"), end, config.token("unk_token", "<unk>"),
                    config.token("mask_token", "<mask>")});
}

void finish_t5(File& file, const TokenizerConfig& config) {
  finish_unigram(file, 2, /*prefix_space=*/true);
  file.set_template({"$A", "</s>"});
  file.add_special({"</s>", config.token("pad_token", "<pad>"), config.token("unk_token", "<unk>")});
}

/// Sets the parts of a tokenizer.json that its class in transformers makes itself, whatever the file says. A file that names no class, or
/// another class, stays as it is.
std::string as_its_class(const std::string& path, std::string bytes) {
  static const std::map<std::string, void (*)(File&, const TokenizerConfig&)> classes = {
      {"CLIPTokenizer", finish_clip},       {"GPT2Tokenizer", finish_gpt2},  {"RobertaTokenizer", finish_roberta},
      {"Siglip2Tokenizer", finish_gemma},   {"GemmaTokenizer", finish_gemma}, {"XLMRobertaTokenizer", finish_xlm_roberta},
      {"T5Tokenizer", finish_t5},           {"BertTokenizer", finish_bert},  {"DistilBertTokenizer", finish_bert},
      {"ElectraTokenizer", finish_bert},    {"MobileBertTokenizer", finish_bert}};
  const TokenizerConfig config(fs::path(path).parent_path().string());
  const auto its = classes.find(config.type());
  if (its == classes.end()) return bytes;
  const json before = parse_json_object(bytes, path);
  File file(before, path);
  its->second(file, config);
  return file.is(before) ? bytes : file.text();
}

std::string of_byte_pairs(const std::string& path, const std::string& bytes) {
  const TokenizerConfig config(fs::path(path).parent_path().string());
  json merges = read_merges((fs::path(path).parent_path() / "merges.txt").string());
  bool clip = false;
  for (const json& merge : merges) clip = clip || merge.get<std::string>().ends_with("</w>");
  File file = File::around({{"type", "BPE"}, {"vocab", parse_json_object(bytes, path)}, {"merges", std::move(merges)}}, path);
  file.set("decoder", byte_level(true));
  (clip ? finish_clip : finish_roberta)(file, config);
  return file.text();
}

/// Returns the pieces of a SentencePiece model with their scores, from the piece `first` on.
json pieces_of(const SentencePieceModel& model, int first, const std::string& path) {
  json out = json::array();
  for (int id = first; id < model.processor->GetPieceSize(); ++id) {
    const std::string& piece = model.processor->IdToPiece(id);
    if (!is_utf8(piece)) user_error(path, ": piece ", id, " is not UTF-8: the file is damaged");
    out.push_back({piece, model.processor->GetScore(id)});
  }
  return out;
}

/// Returns XLM-RoBERTa's vocabulary. It starts with four tokens of its own, in place of the SentencePiece model's first three,
/// and ends with <mask>.
json xlm_roberta_vocabulary(const SentencePieceModel& model, const std::string& path) {
  json out = json::array({{"<s>", 0.0}, {"<pad>", 0.0}, {"</s>", 0.0}, {"<unk>", 0.0}});
  for (json& piece : pieces_of(model, 3, path)) out.push_back(std::move(piece));
  out.push_back({"<mask>", 0.0});
  return out;
}

std::string of_sentence_pieces(const std::string& path, const std::string& bytes, bool xlm_roberta) {
  constexpr int t5_extra_ids = 100;
  const SentencePieceModel model = load_sentencepiece(bytes, path);
  if (!model.is_unigram)
    user_error(path, ": is a SentencePiece model of a type other than unigram, which cannot be converted to a tokenizer.json");
  json vocabulary = xlm_roberta ? xlm_roberta_vocabulary(model, path) : pieces_of(model, 0, path);
  std::vector<std::string> special;
  for (int i = 0; i < (xlm_roberta ? 0 : t5_extra_ids); ++i) special.push_back("<extra_id_" + std::to_string(i) + ">");
  for (auto extra = special.rbegin(); extra != special.rend(); ++extra) vocabulary.push_back({*extra, 0.0});
  File file = File::around({{"type", "Unigram"}, {"vocab", std::move(vocabulary)}}, path);
  if (!model.normalization.empty())
    file.set("normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", base64_encode(model.normalization)}});
  file.set("decoder", metaspace(true));
  (xlm_roberta ? finish_xlm_roberta : finish_t5)(file, TokenizerConfig(fs::path(path).parent_path().string()));
  file.add_special(special);
  return file.text();
}

}  // namespace

json of_word_pieces(const std::vector<std::string>& pieces, const TokenizerConfig& config, const std::string& path) {
  json::object_t vocabulary;
  for (std::size_t i = 0; i < pieces.size(); ++i) vocabulary[pieces[i]] = i;
  File file = File::around({{"type", "WordPiece"}, {"vocab", std::move(vocabulary)}}, path);
  file.set("decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}});
  finish_bert(file, config);
  return std::move(file).value();
}

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
  if (name == "vocab.txt") {
    if (!is_utf8(bytes)) user_error(path, ": is not UTF-8; expected BERT's vocab.txt, one piece per line");
    return of_word_pieces(split_lines(bytes), TokenizerConfig(fs::path(path).parent_path().string()), path).dump();
  }
  if (name.ends_with(".model")) return of_sentence_pieces(path, bytes, name == "sentencepiece.bpe.model");
  return name == "tokenizer.json" ? as_its_class(path, std::move(bytes)) : bytes;
}

}  // namespace tessera::json_tokenizer
