#include <algorithm>
#include <filesystem>
#include <set>

#include "src/data/tokenizers/caption_cleanup.h"
#include "src/data/tokenizers/merged_pairs.h"
#include "src/data/tokenizers/text_stages.h"
#include "src/data/tokenizers/vocabulary_file.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/data/tokenizers/sentencepiece.h>
#include <tessera/data/tokenizers/tokenizer_json.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

json parsed(const std::string& text, const std::string& origin) {
  json out = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!out.is_object()) user_error(origin, ": is no JSON object: the file is damaged");
  return out;
}

/// A token that is looked for before anything else.
struct AddedToken {
  std::string content;
  std::int64_t id;
  bool special;
};

class TokenizerJson : public Tokenizer {
 public:
  TokenizerJson(const TokenizerJsonSettings& settings, Vocabulary vocabulary, const json& file)
      : settings_(settings),
        bytes_(std::move(vocabulary.bytes)),
        normalize_(stages::make_normalizer(file.value("normalizer", json()), vocabulary.origin)),
        split_(stages::make_pre_tokenizer(file.value("pre_tokenizer", json()), vocabulary.origin)),
        pairs_(model_of(file, vocabulary.origin), vocabulary.origin) {
    check_keys(file, vocabulary.origin);
    read_added(file.value("added_tokens", json::array()), vocabulary.origin);
    read_ends(file.value("post_processor", json()), vocabulary.origin);
    for (const auto& [token, id] : pairs_.vocabulary()) keep(token, id);
    for (const AddedToken& token : added_) keep(token.content, token.id);
    byte_level_ = file.value("pre_tokenizer", json()).dump().find("\"ByteLevel\"") != std::string::npos;
    const auto most = static_cast<std::int64_t>(before_.size() + after_.size());
    if (settings.context_length <= most)
      user_error(vocabulary.origin, ": context_length ", settings.context_length, " leaves no room beside ", most, " special tokens");
  }

  std::vector<std::int64_t> encode(std::string_view given) const override {
    const std::string text = cleaned_caption(is_utf8(given) ? std::string(given) : repair_utf8(given), settings_.cleanup);
    const std::size_t limit = static_cast<std::size_t>(settings_.context_length) - after_.size();
    std::vector<std::int64_t> ids = before_;
    for (std::size_t at = 0; at < text.size() && ids.size() < limit;) {
      const auto [begin, token] = next_added(text, at);
      encode_text(text.substr(at, begin - at), limit, ids);
      if (token == nullptr) break;
      ids.push_back(token->id);
      at = begin + token->content.size();
    }
    if (ids.size() > limit) ids.resize(limit);
    ids.insert(ids.end(), after_.begin(), after_.end());
    return ids;
  }

  std::string decode(const std::vector<std::int64_t>& ids) const override {
    const std::vector<std::int64_t> special = special_ids();
    std::string text;
    for (const std::int64_t id : ids) {
      if (id < 0 || id >= vocab_size()) user_error("tokenizer_json: id ", id, " is not in 0..", vocab_size() - 1);
      if (!after_.empty() && id == after_.back()) break;
      if (!std::ranges::binary_search(special, id)) text += readable(tokens_[static_cast<std::size_t>(id)]);
    }
    return repair_utf8(std::string(strip(text)));
  }

  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(tokens_.size()); }
  std::int64_t context_length() const override { return settings_.context_length; }
  std::int64_t pad_id() const override { return settings_.pad_id; }
  bool pad_is_text() const override { return settings_.pad_is_text; }
  std::vector<std::int64_t> special_ids() const override {
    std::set<std::int64_t> ids;
    for (const AddedToken& token : added_)
      if (token.special) ids.insert(token.id);
    return {ids.begin(), ids.end()};
  }
  std::string name() const override { return "tokenizer_json"; }
  const std::string& vocabulary_bytes() const override { return bytes_; }

 private:
  static const json& model_of(const json& file, const std::string& origin) {
    if (!file.contains("model") || !file.at("model").is_object()) user_error(origin, ": has no model: is no tokenizer.json");
    const json& model = file.at("model");
    const std::string type = model.value("type", "BPE");
    if (type != "BPE") user_error(origin, ": its model ", type, " is not known here (docs/pretrained.md): BPE is");
    if (model.contains("dropout") && model.at("dropout").is_number() && model.at("dropout").get<double>() > 0)
      user_error(origin, ": its model's dropout is not known here");
    return model;
  }

  static void check_keys(const json& file, const std::string& origin) {
    static const std::set<std::string> known = {"version", "truncation", "padding", "added_tokens", "normalizer",
                                                "pre_tokenizer", "post_processor", "decoder", "model"};
    for (const auto& [key, value] : file.items())
      if (!known.contains(key)) user_error(origin, ": its part ", key, " is not known here");
  }

  void read_added(const json& tokens, const std::string& origin) {
    for (const json& token : tokens) {
      for (const char* key : {"lstrip", "rstrip", "single_word"})
        if (token.value(key, false)) user_error(origin, ": ", key, " of the added token ", token.at("content").dump(), " is not known here");
      added_.push_back({token.at("content").get<std::string>(), token.at("id").get<std::int64_t>(), token.value("special", false)});
    }
  }

  /// The special tokens before and behind a text.
  void read_ends(const json& processor, const std::string& origin) {
    if (processor.is_null()) return;
    const std::string type = processor.value("type", "");
    if (type == "ByteLevel") return;
    if (type == "Sequence") {
      for (const json& part : processor.at("processors")) read_ends(part, origin);
    } else if (type == "RobertaProcessing" || type == "BertProcessing") {
      before_ = {processor.at("cls").at(1).get<std::int64_t>()};
      after_ = {processor.at("sep").at(1).get<std::int64_t>()};
    } else if (type == "TemplateProcessing") {
      bool behind = false;
      for (const json& part : processor.at("single")) {
        if (part.contains("Sequence")) {
          behind = true;
          continue;
        }
        const auto name = part.at("SpecialToken").at("id").get<std::string>();
        for (const json& id : processor.at("special_tokens").at(name).at("ids"))
          (behind ? after_ : before_).push_back(id.get<std::int64_t>());
      }
    } else {
      user_error(origin, ": its post_processor ", type, " is not known here (docs/pretrained.md)");
    }
  }

  void keep(const std::string& token, std::int64_t id) {
    constexpr std::int64_t kMost = 1 << 24;
    if (id < 0 || id >= kMost) user_error("tokenizer_json: the token ", token, " has the id ", id);
    if (id >= vocab_size()) tokens_.resize(static_cast<std::size_t>(id) + 1);
    tokens_[static_cast<std::size_t>(id)] = token;
  }

  /// The added token that begins first in the text from `at` on, the longest of those; its end of the text if there is none.
  std::pair<std::size_t, const AddedToken*> next_added(const std::string& text, std::size_t at) const {
    std::pair<std::size_t, const AddedToken*> best = {text.size(), nullptr};
    for (const AddedToken& token : added_) {
      if (token.content.empty()) continue;
      const std::size_t found = text.find(token.content, at);
      if (found == std::string::npos) continue;
      const bool longer = best.second == nullptr || token.content.size() > best.second->content.size();
      if (found < best.first || (found == best.first && longer)) best = {found, &token};
    }
    return best;
  }

  void encode_text(const std::string& text, std::size_t limit, std::vector<std::int64_t>& ids) const {
    if (text.empty()) return;
    std::string utf8;
    for (const icu::UnicodeString& piece : split_(normalize_(icu::UnicodeString::fromUTF8(text)))) {
      if (ids.size() >= limit) return;
      utf8.clear();
      piece.toUTF8String(utf8);
      pairs_.encode(utf8, ids);
    }
  }

  /// A token's text: its bytes, or its characters with a space for SentencePiece's mark and the end of a word.
  std::string readable(const std::string& token) const {
    std::string text = token;
    const std::string& end = pairs_.word_end();
    const bool ends = !end.empty() && text.ends_with(end);
    if (ends) text.resize(text.size() - end.size());
    if (byte_level_) text = bytes_of(text);
    if (text.size() == 6 && text.starts_with("<0x") && text.back() == '>')
      return std::string(1, static_cast<char>(std::stoi(text.substr(3, 2), nullptr, 16)));
    constexpr std::string_view kMark = "\u2581";
    for (std::size_t at = text.find(kMark); at != std::string::npos; at = text.find(kMark, at)) text.replace(at, kMark.size(), " ");
    return ends ? text + " " : text;
  }

  static std::string bytes_of(const std::string& characters) {
    std::string out;
    const icu::UnicodeString text = icu::UnicodeString::fromUTF8(characters);
    for (std::int32_t i = 0; i < text.length(); i = text.moveIndex32(i, 1))
      for (unsigned byte = 0; byte < 256; ++byte)
        if (stages::character_of_byte(static_cast<unsigned char>(byte)) == static_cast<char32_t>(text.char32At(i)))
          out += static_cast<char>(byte);
    return out;
  }

  TokenizerJsonSettings settings_;
  std::string bytes_;
  stages::Normalizer normalize_;
  stages::PreTokenizer split_;
  MergedPairs pairs_;
  std::vector<AddedToken> added_;
  std::vector<std::int64_t> before_, after_;
  std::vector<std::string> tokens_;
  bool byte_level_ = false;
};

}  // namespace

std::shared_ptr<Tokenizer> make_tokenizer_json(const TokenizerJsonSettings& settings, const TokenizerContext& context) {
  Vocabulary vocabulary = load_vocabulary("tokenizer_json", "model", settings.model, context);
  const json file = parsed(vocabulary.bytes, vocabulary.origin);
  const std::string origin = vocabulary.origin;
  try {
    return std::make_shared<TokenizerJson>(settings, std::move(vocabulary), file);
  } catch (const json::exception& error) {
    user_error(origin, ": is no tokenizer.json, or damaged: ", error.what());
  }
}

std::optional<FolderTokenizer> tokenizer_of_folder(const ForeignModel& foreign, const std::string& folder) {
  if (!foreign.tokenizer_in_folder || !foreign.model.text) return std::nullopt;
  if (foreign.separator_is_padding)
    user_error(folder, ": its texts cannot be read: strip_sep_token, which gives the tokenizer's separator the id 0, is not known here");
  const std::string fast = folder + "/tokenizer.json", pieces = folder + "/spiece.model";
  const std::string config_path = folder + "/tokenizer_config.json";
  const config::Node* length = foreign.model.text->encoder.settings.find("context_length");
  const auto context_length = config::Value<std::int64_t>::read(*length, folder, 0);
  const json config = fs::is_regular_file(config_path) ? parsed(io::read_file(config_path), config_path) : json::object();
  std::string pad;  // a string, or an object that describes the token
  if (const json token = config.value("pad_token", json()); token.is_object())
    pad = token.value("content", "");
  else if (token.is_string())
    pad = token.get<std::string>();
  if (fs::is_regular_file(fast)) {
    TokenizerJsonSettings settings;
    settings.context_length = context_length;
    settings.pad_is_text = foreign.padding_is_text;
    if (!foreign.cleanup.empty()) settings.cleanup = foreign.cleanup;
    const std::string bytes = io::read_file(fast);
    const json file = parsed(bytes, fast);
    for (const json& token : file.value("added_tokens", json::array()))
      if (token.value("content", "") == pad) settings.pad_id = token.value("id", settings.pad_id);
    return FolderTokenizer{{"tokenizer_json", config::dump(settings)}, fast, bytes};
  }
  if (!fs::is_regular_file(pieces))
    user_error(folder, ": has a text tower, but neither tokenizer.json nor spiece.model: fetch the tokenizer's files, too");
  SentencePieceSettings settings;
  settings.context_length = context_length;
  settings.pad_is_text = foreign.padding_is_text;
  settings.cleanup = foreign.cleanup == "canonicalize" ? "canonicalize" : "siglip";
  settings.pad_id = pad == "</s>" ? 1 : 0;
  return FolderTokenizer{{"sentencepiece", config::dump(settings)}, pieces, io::read_file(pieces)};
}

}  // namespace tessera
