#include "src/data/tokenizers/json/pipeline.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "src/data/tokenizers/json/characters.h"
#include "src/data/tokenizers/json/part.h"
#include "src/data/tokenizers/json/pattern.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::json_tokenizer {
namespace {

using Texts = std::vector<std::string>;

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
}

using Steps = std::vector<Decoder>;

void byte_level(Texts& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) bytes += bytes_of_characters(token).value_or(token);
  tokens = {repair_utf8(bytes)};
}

void clean_english(std::string& text) {
  constexpr std::pair<std::string_view, std::string_view> english[] = {
    {" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"},
    {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : english) replace_all(text, from, to);
}

// `strips_first` says whether the first token loses its prefix, too. It is an extension for `wordpiece`, whose pieces are read one by one.
void add_word_piece(const Part& part, Steps& out) {
  out.emplace_back([prefix = part.text("prefix", "##"), cleanup = part.flag("cleanup", true),
                    strips_first = part.flag("strips_first", false)](Texts& tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if ((i > 0 || strips_first) && tokens[i].starts_with(prefix))
        tokens[i].erase(0, prefix.size());
      else if (i > 0)
        tokens[i].insert(0, " ");
      if (cleanup) clean_english(tokens[i]);
    }
  });
}

// Replaces a mark by a space, except in the token at one end, where nothing takes its place.
enum class Bare { none, first, last };

Decoder replace_marks(const std::string& mark, Bare bare) {
  return [mark, bare](Texts& tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      replace_all(tokens[i], mark, i == (bare == Bare::last ? tokens.size() - 1 : 0) && bare != Bare::none ? "" : " ");
  };
}

void add_metaspace(const Part& part, Steps& out) {
  const bool never = part.text("prepend_scheme", "") == "never";
  const std::string mark = part.character("replacement");
  out.push_back(replace_marks(mark, !never && part.flag("add_prefix_space", true) ? Bare::first : Bare::none));
}

void add_replace(const Part& part, Steps& out) {
  out.emplace_back([pattern = make_pattern(part.at("pattern"), part.origin()), content = part.text("content")](Texts& tokens) {
    for (std::string& token : tokens) {
      std::vector<Span> found;
      pattern(token, found);
      for (auto span = found.rbegin(); span != found.rend(); ++span) token.replace(span->begin, span->end - span->begin, content);
    }
  });
}

std::optional<char> byte_of(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  unsigned value = 0;
  const char* const begin = token.data() + 3;
  if (std::from_chars(begin, begin + 2, value, 16).ptr != begin + 2) return std::nullopt;
  return static_cast<char>(value);
}

// Converts byte tokens such as <0xE2> to the characters that they spell.
void byte_fallback(Texts& tokens) {
  Texts out;
  std::string bytes;
  const auto end_bytes = [&] {
    if (bytes.empty()) return;
    if (is_utf8(bytes)) out.push_back(bytes);
    for (std::size_t i = 0; i < bytes.size() && !is_utf8(bytes); ++i) out.emplace_back("\uFFFD");
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const std::optional<char> byte = byte_of(token)) {
      bytes += *byte;
      continue;
    }
    end_bytes();
    out.push_back(std::move(token));
  }
  end_bytes();
  tokens = std::move(out);
}

void fuse(Texts& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  tokens = {all};
}

void add_strip(const Part& part, Steps& out) {
  const auto count = [&](const char* key) {
    if (!part.at(key).is_number_unsigned()) part.refuse("has no count for " + std::string(key));
    return part.at(key).get<std::size_t>();
  };
  out.emplace_back([content = part.character("content"), start = count("start"), stop = count("stop")](Texts& tokens) {
    for (std::string& token : tokens) {
      for (std::size_t i = 0; i < start && token.starts_with(content); ++i) token.erase(0, content.size());
      for (std::size_t i = 0; i < stop && token.ends_with(content); ++i) token.resize(token.size() - content.size());
    }
  });
}

void put_spaces_between(Texts& tokens) {
  for (std::size_t i = 1; i < tokens.size(); ++i) tokens[i].insert(0, " ");
}

const std::vector<PartType<Steps>>& types() {
  static const std::vector<PartType<Steps>> list = {
      {"ByteLevel", {"add_prefix_space", "trim_offsets", "use_regex"}, add_step<byte_level>},
      {"WordPiece", {"prefix", "cleanup", "strips_first"}, add_word_piece},
      {"Metaspace", {"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"}, add_metaspace},
      {"BPEDecoder", {"suffix"},
       [](const Part& part, Steps& out) { out.push_back(replace_marks(part.text("suffix", "</w>"), Bare::last)); }},
      {"Replace", {"pattern", "content"}, add_replace},
      {"Strip", {"content", "start", "stop"}, add_strip},
      {"ByteFallback", {}, add_step<byte_fallback>},
      {"Fuse", {}, add_step<fuse>}};
  return list;
}

}  // namespace

Decoder make_decoder(const nlohmann::json& json, const std::string& origin) {
  if (json.is_null()) return put_spaces_between;
  Steps steps;
  read_part(json, "decoder", "decoders", types(), origin, steps);
  return [steps](Texts& tokens) {
    for (const Decoder& step : steps) step(tokens);
  };
}

}  // namespace tessera::json_tokenizer
