#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/data/command.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/data/tokenizer.h>

namespace tessera::tools {
namespace {

struct TokenizeOptions {
  std::string tokenizer;
  std::string vocabulary;
  std::optional<std::int64_t> context_length;
  std::optional<std::string> cleanup;
  std::vector<std::string> settings;
};

// The tokenizers call the same things by the names of their papers; this finds the one that this tokenizer has.
std::string setting_key(const std::string& tokenizer, const std::string& option,
                        const std::vector<std::string>& candidates) {
  for (const config::Catalogue::Entry& entry : tokenizers().entries()) {
    if (entry.name != tokenizer) continue;
    for (const config::FieldDoc& field : entry.document())
      for (const std::string& candidate : candidates)
        if (field.path == candidate) return candidate;
    user_error(option, ": the tokenizer ", tokenizer, " has no such setting");
  }
  user_error("--tokenizer: unknown tokenizer ", tokenizer, suggestion(tokenizer, tokenizers().names()));
}

std::shared_ptr<Tokenizer> make_tokenizer(const TokenizeOptions& options) {
  config::Node settings = config::Node::map();
  const auto set = [&](const std::string& option, const std::vector<std::string>& keys, const std::string& value,
                       bool quoted) {
    settings.set(setting_key(options.tokenizer, option, keys), config::Node::scalar(value, {option, 0}, quoted));
  };
  set("--vocab", {"merges", "vocab", "model"}, options.vocabulary, true);
  if (options.context_length)
    set("--context-length", {"context_length", "max_length"}, std::to_string(*options.context_length), false);
  if (options.cleanup) set("--cleanup", {"cleanup"}, *options.cleanup, true);
  for (const std::string& assignment : options.settings) config::apply_override(settings, assignment);
  return tokenizers().make({options.tokenizer, settings}, "", TokenizerContext{});
}

std::string from_hex(const std::string& hex, long long line) {
  const auto digit = [&](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    user_error("standard input:", line, ": utf8_hex holds '", c, "', which is no hexadecimal digit");
  };
  if (hex.size() % 2 != 0)
    user_error("standard input:", line, ": utf8_hex has an odd number of digits (", hex.size(), ")");
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1]));
  return bytes;
}

// The text of one line: `utf8_hex` (raw bytes) if it is there, else `text`.
std::string read_text(const std::string& line, long long number) {
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(is_utf8(line) ? line : repair_utf8(line));
  } catch (const nlohmann::json::parse_error& error) {
    user_error("standard input:", number, ": not JSON (byte ", error.byte,
               "); expected a line like {\"text\": \"a cat\"}");
  }
  for (const char* key : {"utf8_hex", "text"}) {
    if (!object.is_object() || !object.contains(key)) continue;
    if (!object[key].is_string())
      user_error("standard input:", number, ": ", key, " is a ", object[key].type_name(), ", expected a string");
    const auto text = object[key].get<std::string>();
    return key == std::string_view("text") ? text : from_hex(text, number);
  }
  user_error("standard input:", number, ": has no text; expected a line like {\"text\": \"a cat\"}");
}

void write_ids(const std::vector<std::int64_t>& ids, std::string& out) {
  out = "{\"ids\": [";
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ", ";
    out += std::to_string(ids[i]);
  }
  out += "]}\n";
}

int tokenize(const TokenizeOptions& options) {
  const std::shared_ptr<Tokenizer> tokenizer = make_tokenizer(options);
  std::ios::sync_with_stdio(false);
  std::cin.tie(nullptr);
  std::string line, out;
  for (long long number = 1; std::getline(std::cin, line); ++number) {
    if (strip(line).empty()) continue;
    try {
      write_ids(tokenizer->encode(read_text(line, number)), out);
    } catch (...) {
      std::cout.flush();
      throw;
    }
    std::cout << out;
    if (std::cin.rdbuf()->in_avail() <= 0) std::cout.flush();  // whoever feeds us may wait for the answer
    if (!std::cout) user_error("standard output: cannot write");
  }
  std::cout.flush();
  if (!std::cout) user_error("standard output: cannot write");
  return 0;
}

}  // namespace

Command tokenize_command(CLI::App& program) {
  const auto options = std::make_shared<TokenizeOptions>();
  CLI::App* app =
      program.add_subcommand("tokenize", "Reads JSON lines {\"text\"} on standard input, writes {\"ids\"}.");
  app->footer(
      "Ids carry the special tokens and no padding. A line may give raw bytes as \"utf8_hex\" in place of \"text\".");
  app->add_option("--tokenizer", options->tokenizer, "clip-bpe, wordpiece or sentencepiece")->required();
  app->add_option("--vocab", options->vocabulary, "the vocabulary file: merges, vocab.txt or model")->required();
  app->add_option("--context-length", options->context_length, "most ids of a text (default: the tokenizer's own)");
  app->add_option("--cleanup", options->cleanup, "clip-bpe: none or basic (default)");
  app->add_option("--set", options->settings, "any other setting of the tokenizer, KEY=VALUE (lower_case=false)");
  return {app, [options] { return tokenize(*options); }};
}

}  // namespace tessera::tools
