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

class ByteLevel : public Decoder {
 public:
  void decode(Texts& tokens) const override {
    std::string bytes;
    for (const std::string& token : tokens) bytes += bytes_of_characters(token).value_or(token);
    tokens = {repair_utf8(bytes)};
  }
};

class WordPiece : public Decoder {
 public:
  WordPiece(std::string prefix, bool cleanup, bool strips_first) : prefix_(std::move(prefix)), cleanup_(cleanup), strips_first_(strips_first) {}
  void decode(Texts& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if ((i > 0 || strips_first_) && token.starts_with(prefix_))
        token.erase(0, prefix_.size());
      else if (i > 0)
        token = std::string(" ").append(token);
      if (cleanup_) clean(token);
    }
  }

 private:
  static void clean(std::string& text) {
    constexpr std::pair<std::string_view, std::string_view> english[] = {
      {" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"},
      {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [from, to] : english) replace_all(text, from, to);
  }
  std::string prefix_;
  bool cleanup_;
  bool strips_first_;  // whether the first token loses its prefix, too; an extension for `wordpiece`, whose pieces are read one by one
};

/// Replaces a mark by a space, except in the token at one end, where nothing takes its place.
class Marks : public Decoder {
 public:
  enum class Bare { none, first, last };
  Marks(std::string mark, Bare bare) : mark_(std::move(mark)), bare_(bare) {}
  void decode(Texts& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const bool bare = bare_ == Bare::first ? i == 0 : bare_ == Bare::last && i + 1 == tokens.size();
      replace_all(tokens[i], mark_, bare ? "" : " ");
    }
  }

 private:
  std::string mark_;
  Bare bare_;
};

class Replace : public Decoder {
 public:
  Replace(std::shared_ptr<const Pattern> pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void decode(Texts& tokens) const override {
    for (std::string& token : tokens) {
      std::vector<Span> found;
      pattern_->find(token, found);
      for (auto span = found.rbegin(); span != found.rend(); ++span) token.replace(span->begin, span->end - span->begin, content_);
    }
  }

 private:
  std::shared_ptr<const Pattern> pattern_;
  std::string content_;
};

/// Converts byte tokens such as <0xE2> to the characters that they spell.
class ByteFallback : public Decoder {
 public:
  void decode(Texts& tokens) const override {
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

 private:
  static std::optional<char> byte_of(const std::string& token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
    unsigned value = 0;
    const char* const begin = token.data() + 3;
    if (std::from_chars(begin, begin + 2, value, 16).ptr != begin + 2) return std::nullopt;
    return static_cast<char>(value);
  }
};

class Fuse : public Decoder {
 public:
  void decode(Texts& tokens) const override {
    std::string all;
    for (const std::string& token : tokens) all += token;
    tokens = {all};
  }
};

class Strip : public Decoder {
 public:
  Strip(std::string content, std::size_t start, std::size_t stop) : content_(std::move(content)), start_(start), stop_(stop) {}
  void decode(Texts& tokens) const override {
    for (std::string& token : tokens) {
      for (std::size_t i = 0; i < start_ && token.starts_with(content_); ++i) token.erase(0, content_.size());
      for (std::size_t i = 0; i < stop_ && token.ends_with(content_); ++i) token.resize(token.size() - content_.size());
    }
  }

 private:
  std::string content_;
  std::size_t start_, stop_;
};

class Spaces : public Decoder {
 public:
  void decode(Texts& tokens) const override {
    for (std::size_t i = 1; i < tokens.size(); ++i) tokens[i] = std::string(" ").append(tokens[i]);
  }
};

class Sequence : public Decoder {
 public:
  explicit Sequence(std::vector<std::shared_ptr<const Decoder>> parts) : parts_(std::move(parts)) {}
  void decode(Texts& tokens) const override {
    for (const auto& part : parts_) part->decode(tokens);
  }

 private:
  std::vector<std::shared_ptr<const Decoder>> parts_;
};

std::shared_ptr<const Decoder> read_strip(const Part& part) {
  part.allow({"content", "start", "stop"});
  const auto count = [&](const char* key) {
    if (!part.at(key).is_number_unsigned()) part.refuse("has no count for " + std::string(key));
    return part.at(key).get<std::size_t>();
  };
  return std::make_shared<Strip>(part.character("content"), count("start"), count("stop"));
}

std::shared_ptr<const Decoder> read_one(const Part& part) {
  const std::string& type = part.type();
  if (type == "ByteLevel") {
    part.allow({"add_prefix_space", "trim_offsets", "use_regex"});
    return std::make_shared<ByteLevel>();
  }
  if (type == "WordPiece") {
    part.allow({"prefix", "cleanup", "strips_first"});
    return std::make_shared<WordPiece>(part.has("prefix") ? part.text("prefix") : "##", part.flag("cleanup", true), part.flag("strips_first", false));
  }
  if (type == "Metaspace") {
    part.allow({"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
    const bool never = part.has("prepend_scheme") && part.text("prepend_scheme") == "never";
    return std::make_shared<Marks>(part.character("replacement"), !never && part.flag("add_prefix_space", true) ? Marks::Bare::first : Marks::Bare::none);
  }
  if (type == "BPEDecoder") {
    part.allow({"suffix"});
    return std::make_shared<Marks>(part.has("suffix") ? part.text("suffix") : "</w>", Marks::Bare::last);
  }
  if (type == "Replace") {
    part.allow({"pattern", "content"});
    return std::make_shared<Replace>(make_pattern(part.at("pattern"), part.origin()), part.text("content"));
  }
  if (type == "Strip") return read_strip(part);
  if (type != "ByteFallback" && type != "Fuse") part.unknown();
  part.allow({});
  if (type == "Fuse") return std::make_shared<Fuse>();
  return std::make_shared<ByteFallback>();
}

void add_parts(const nlohmann::json& json, const std::string& origin, int depth, std::vector<std::shared_ptr<const Decoder>>& out) {
  constexpr int deepest = 16;
  const Part part(json, "decoder", origin);
  if (part.type() != "Sequence") return out.push_back(read_one(part));
  part.allow({"decoders"});
  if (depth == deepest) part.refuse("is nested too deeply");
  for (const nlohmann::json& each : part.at("decoders")) add_parts(each, origin, depth + 1, out);
}

}  // namespace

std::shared_ptr<const Decoder> make_decoder(const nlohmann::json& json, const std::string& origin) {
  if (json.is_null()) return std::make_shared<Spaces>();
  std::vector<std::shared_ptr<const Decoder>> parts;
  add_parts(json, origin, 0, parts);
  return std::make_shared<Sequence>(std::move(parts));
}

}  // namespace tessera::json_tokenizer
