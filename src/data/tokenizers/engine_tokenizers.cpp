#include "src/data/tokenizers/engine_tokenizers.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "src/data/tokenizers/caption_cleanup.h"
#include "src/data/tokenizers/json/assembled.h"
#include "src/data/tokenizers/json/characters.h"
#include "src/data/tokenizers/json/pipeline.h"
#include "src/data/tokenizers/tokenizer_config.h"
#include "src/data/tokenizers/vocabulary_file.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/shipped.h>

namespace tessera {
namespace {

using nlohmann::json;

/// What a setting of the configuration adds to the rules of its tokenizer.json.
struct EngineSettings {
  std::string name;  // the setting's name, for error messages
  std::int64_t context_length = 0;
  std::int64_t pad_id = 0;
  bool pad_is_text = false;
  std::int64_t zero_id = -1;  // the id to replace by 0; -1: none
  /// Returns the text to encode, as valid UTF-8: `text` itself, or a cleaned copy that the function stores in `room`.
  std::function<std::string_view(std::string_view text, std::string& room)> clean;
};

/// A tokenizer that runs on the engine. Thread-safe.
class EngineTokenizer : public Tokenizer {
 public:
  /// `file` holds the rules: a tokenizer.json, or what a preset (clip-bpe, wordpiece) makes of `vocabulary`. Throws UserError naming
  /// `vocabulary.origin` if the rules are damaged or not supported.
  EngineTokenizer(EngineSettings settings, Vocabulary vocabulary, const json& file)
      : settings_(std::move(settings)), bytes_(std::move(vocabulary.bytes)), pipeline_(file, vocabulary.origin) {}

  std::vector<std::int64_t> encode(std::string_view text) const override {
    thread_local std::string room;
    std::vector<std::int64_t> ids = pipeline_.encode(settings_.clean(text, room), static_cast<std::size_t>(settings_.context_length));
    if (settings_.zero_id >= 0) std::replace(ids.begin(), ids.end(), settings_.zero_id, std::int64_t{0});
    return ids;
  }

  std::int64_t count_ids(std::string_view text) const override {
    std::string room;
    return std::ssize(pipeline_.encode_whole(settings_.clean(text, room)));
  }

  std::string decode(const std::vector<std::int64_t>& ids) const override {
    for (const std::int64_t id : ids)
      if (id < 0 || id >= vocab_size()) user_error(settings_.name, ": id ", id, " is not in 0..", vocab_size() - 1);
    const std::vector<std::int64_t>& behind = pipeline_.ends().behind;
    const auto end = behind.empty() ? ids.end() : std::find(ids.begin(), ids.end(), behind.back());  // padding follows the end token
    return pipeline_.decode({ids.begin(), end});
  }

  std::int64_t vocab_size() const override { return pipeline_.size(); }
  std::int64_t context_length() const override { return settings_.context_length; }
  std::int64_t pad_id() const override { return settings_.pad_id; }
  bool pad_is_text() const override { return settings_.pad_is_text; }
  std::vector<std::int64_t> special_ids() const override { return pipeline_.special_ids(); }
  std::string name() const override { return settings_.name; }
  const std::string& vocabulary_bytes() const override { return bytes_; }
  /// Returns the number of special tokens around a text, and the maximum number of ids including them.
  std::size_t special_ends() const { return pipeline_.ends().size(); }
  std::size_t most_ids() const { return std::min(static_cast<std::size_t>(settings_.context_length), pipeline_.longest()); }

 private:
  EngineSettings settings_;
  std::string bytes_;
  json_tokenizer::Pipeline pipeline_;
};

/// Returns the text, or a copy in `room` in which U+FFFD replaces the bytes that are not UTF-8. This is a `clean` for EngineSettings.
std::string_view repaired_utf8(std::string_view text, std::string& room) {
  if (is_utf8(text)) return text;
  return room = repair_utf8(text);
}

EngineSettings engine_settings(const TokenizerJsonSettings& settings) {
  EngineSettings out{"tokenizer_json", settings.context_length, settings.pad_id, settings.pad_is_text, settings.zero_id, repaired_utf8};
  if (settings.cleanup != "none")
    out.clean = [cleanup = settings.cleanup](std::string_view text, std::string& room) -> std::string_view {
      return room = cleaned_caption(repaired_utf8(text, room), cleanup);
    };
  return out;
}

constexpr std::size_t clip_merges = 48'894;
constexpr std::string_view clip_word_end = "</w>";

Cleanup cleanup_level(const std::string& name) {
  return name == "none" ? Cleanup::none : name == "mojibake" ? Cleanup::mojibake : name == "full" ? Cleanup::full : Cleanup::basic;
}

/// Returns the characters that stand for bytes, in the order of CLIP's vocabulary: the printable bytes come first.
std::vector<std::string> characters_of_bytes() {
  std::vector<std::string> out;
  for (const bool printable : {true, false})
    for (unsigned byte = 0; byte < 256; ++byte) {
      const char32_t character = json_tokenizer::character_of_byte(static_cast<std::uint8_t>(byte));
      if ((character == byte) == printable) unicode::append_utf8(out.emplace_back(), character);
    }
  return out;
}

std::vector<std::string> split_words(std::string_view line) {
  std::vector<std::string> words;
  for (std::size_t end = 0, begin = line.find_first_not_of(" \t\r"); begin < line.size(); begin = line.find_first_not_of(" \t\r", end)) {
    end = std::min(line.find_first_of(" \t\r", begin), line.size());
    words.emplace_back(line.substr(begin, end - begin));
  }
  return words;
}

/// Reads the pairs of symbols after the header line.
std::vector<std::vector<std::string>> read_clip_merges(std::string_view text, const std::string& origin) {
  std::vector<std::vector<std::string>> merges;
  bool ends_words = false;
  for (std::size_t begin = std::min(text.find('\n'), text.size() - 1) + 1; merges.size() < clip_merges && begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::vector<std::string> words = split_words(text.substr(begin, end - begin));
    if (words.empty() && end == text.size()) break;
    if (words.size() != 2)
      user_error(origin, ":", merges.size() + 2, ": expected two symbols that merge, got ", words.size(),
                 "; is this CLIP's bpe_simple_vocab_16e6.txt?");
    ends_words = ends_words || words[1].ends_with(clip_word_end);
    merges.push_back(std::move(words));
    begin = end + 1;
  }
  if (merges.size() < clip_merges)
    user_error(origin, ": has ", with_thousands(static_cast<long long>(merges.size())), " merges, clip-bpe needs ",
               with_thousands(clip_merges), "; is this CLIP's bpe_simple_vocab_16e6.txt, and whole?");
  if (!ends_words) user_error(origin, ": no merge ends in </w>: these are not CLIP's merges, but perhaps GPT-2's");
  return merges;
}

json special_token(const std::string& content, std::uint64_t id) {
  return {{"id", id},        {"content", content}, {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

/// Returns the rules of OpenCLIP's tokenizer, which get texts that are already cleaned. They differ from the published ones in the pattern
/// that splits texts, and in the special tokens: these count only where the pattern matches exactly one of them.
json open_clip_rules(std::string_view merges, const std::string& origin) {
  json file = clip_tokenizer_json(merges, origin, "<start_of_text>", "<end_of_text>");
  file["normalizer"] = nullptr;
  json bytes = json_tokenizer::byte_level(false);
  bytes["use_regex"] = false;
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", json::array({json{{"type", "OpenClip"}}, bytes})}};
  for (json& token : file["added_tokens"]) token["whole_piece"] = true;
  return file;
}

/// Returns the lines of a vocab.txt. A line that is not UTF-8 keeps its id, but U+FFFD makes it a piece that no cleaned text contains.
std::vector<std::string> read_pieces(const std::string& bytes, const std::string& origin) {
  std::vector<std::string> pieces = split_lines(bytes);
  for (const char* special : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"})
    if (!contains(pieces, special))
      user_error(origin, ": has no ", special, " among its ", pieces.size(),
                 " lines; expected BERT's vocab.txt, one piece per line");
  for (std::string& piece : pieces)
    if (!is_utf8(piece)) piece = repair_utf8(piece);
  return pieces;
}

}  // namespace

std::shared_ptr<Tokenizer> make_tokenizer_json(const TokenizerJsonSettings& settings, const TokenizerContext& context) {
  const bool from_file = context.vocabulary.empty() && !settings.model.empty();
  Vocabulary vocabulary = load_vocabulary("tokenizer_json", "model", settings.model, context);
  const std::string origin = vocabulary.origin;
  try {
    if (from_file) vocabulary.bytes = json_tokenizer::assembled(settings.model.name, std::move(vocabulary.bytes));
    const json file = parse_json_object(vocabulary.bytes, origin);
    auto tokenizer = std::make_shared<EngineTokenizer>(engine_settings(settings), std::move(vocabulary), file);
    const std::size_t special = tokenizer->special_ends(), room = tokenizer->most_ids();
    if (room <= special) user_error(origin, ": context_length ", room, " leaves no room for text next to ", special, " special tokens");
    return tokenizer;
  } catch (const json::exception& error) {
    user_error(origin, ": is not a tokenizer.json, or is damaged: ", error.what());
  }
}

json clip_tokenizer_json(std::string_view merges, const std::string& origin, const std::string& start, const std::string& end) {
  json::object_t vocabulary;
  std::uint64_t id = 0;
  // A name that no text can contain, because it is not UTF-8, keeps its id.
  const auto add = [&](const std::string& name) { vocabulary[is_utf8(name) ? name : repair_utf8(name)] = id++; };
  const std::vector<std::string> characters = characters_of_bytes();
  for (const std::string& character : characters) add(character);
  for (const std::string& character : characters) add(character + std::string(clip_word_end));
  const std::vector<std::vector<std::string>> pairs = read_clip_merges(merges, origin);
  for (const auto& pair : pairs) add(pair[0] + pair[1]);
  json::array_t kept;
  for (const auto& pair : pairs)  // no text can contain a pair with an unknown symbol
    if (vocabulary.contains(pair[0]) && vocabulary.contains(pair[1]) && vocabulary.contains(pair[0] + pair[1])) kept.emplace_back(pair);
  const std::uint64_t start_id = id++, end_id = id++;
  vocabulary[start] = start_id;
  vocabulary[end] = end_id;
  json ends = {{"type", "RobertaProcessing"}, {"sep", json::array({end, end_id})}, {"cls", json::array({start, start_id})},
               {"trim_offsets", false},       {"add_prefix_space", false}};
  json model = {{"type", "BPE"}, {"dropout", nullptr}, {"unk_token", end}, {"continuing_subword_prefix", ""},
                {"end_of_word_suffix", clip_word_end}, {"fuse_unk", false}, {"byte_fallback", false}, {"ignore_merges", false}};
  model["vocab"] = std::move(vocabulary);
  model["merges"] = std::move(kept);
  return {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr},
          {"added_tokens", {special_token(start, start_id), special_token(end, end_id)}},
          {"normalizer", json_tokenizer::clip_normalizer()}, {"pre_tokenizer", json_tokenizer::clip_pre_tokenizer()},
          {"post_processor", std::move(ends)}, {"decoder", json_tokenizer::byte_level(false)}, {"model", std::move(model)}};
}

std::shared_ptr<Tokenizer> make_clip_bpe(const ClipBpeSettings& settings, const TokenizerContext& context) {
  const bool shipped = settings.merges.empty() && context.vocabulary.empty() && context.missing.empty();
  const config::FilePath merges = shipped ? config::FilePath(config::clip_vocabulary_file()) : settings.merges;
  Vocabulary vocabulary = load_vocabulary("clip-bpe", "merges", merges, context);
  const json rules = open_clip_rules(decompressed(vocabulary), vocabulary.origin);
  EngineSettings engine{.name = "clip-bpe", .context_length = settings.context_length, .pad_is_text = settings.pad_is_text};
  engine.clean = [level = cleanup_level(settings.cleanup)](std::string_view text, std::string& room) -> std::string_view {
    if (!is_plain(text)) return room = clean_for_clip(text, level);
    room = text;
    json_tokenizer::lower_ascii(room);
    return room;
  };
  return std::make_shared<EngineTokenizer>(std::move(engine), std::move(vocabulary), rules);
}

json wordpiece_tokenizer_json(const std::string& pieces, bool lower_case, const std::string& origin) {
  return json_tokenizer::of_word_pieces(read_pieces(pieces, origin), TokenizerConfig(json{{"do_lower_case", lower_case}}), origin);
}

std::shared_ptr<Tokenizer> make_wordpiece(const WordPieceSettings& settings, const TokenizerContext& context) {
  Vocabulary vocabulary = load_vocabulary("wordpiece", "vocab", settings.vocab, context);
  json rules = wordpiece_tokenizer_json(vocabulary.bytes, settings.lower_case, vocabulary.origin);
  rules["decoder"]["cleanup"] = false;
  rules["decoder"]["strips_first"] = true;
  EngineSettings engine{.name = "wordpiece", .context_length = settings.context_length, .clean = repaired_utf8};
  engine.pad_id = rules["model"]["vocab"]["[PAD]"].get<std::int64_t>();
  return std::make_shared<EngineTokenizer>(std::move(engine), std::move(vocabulary), rules);
}

}  // namespace tessera
