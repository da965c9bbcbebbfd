#include "src/data/tokenizers/clip_bpe.h"

#include <algorithm>
#include <vector>

#include "src/data/tokenizers/caption_cleanup.h"
#include "src/data/tokenizers/engine_tokenizer.h"
#include "src/data/tokenizers/json/assembled.h"
#include "src/data/tokenizers/json/characters.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/shipped.h>

namespace tessera {
namespace {

using nlohmann::json;

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

}  // namespace

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

}  // namespace tessera
