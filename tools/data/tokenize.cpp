#include <csignal>
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
#include <tessera/data/tokenizers/tokenizer.h>

namespace tessera::tools {
namespace {

struct TokenizeOptions {
  std::string tokenizer;
  std::string vocabulary;
  std::optional<std::int64_t> context_length;
  std::vector<std::string> settings;
};

// Tokenizers use different names for the same setting, as their papers do. Returns the name in `candidates` that `tokenizer` uses.
std::string setting_key(const std::string& tokenizer, const std::string& option,
                        const std::vector<std::string>& candidates) {
  for (const config::RegistryBase::Entry& entry : tokenizers().entries()) {
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
  if (!options.vocabulary.empty()) set("--vocab", {"merges", "vocab", "model"}, options.vocabulary, true);
  if (options.context_length)
    set("--context-length", {"context_length"}, std::to_string(*options.context_length), false);
  for (const std::string& assignment : options.settings) config::apply_override(settings, assignment);
  return tokenizers().make({options.tokenizer, settings}, "", TokenizerContext{});
}

std::string from_hex(const std::string& hex, long long line) {
  const auto digit = [&](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    user_error("standard input:", line, ": utf8_hex holds '", c, "', which is not a hexadecimal digit");
  };
  if (hex.size() % 2 != 0)
    user_error("standard input:", line, ": utf8_hex has an odd number of digits (", hex.size(), ")");
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1]));
  return bytes;
}

// Replaces unpaired surrogates with U+FFFD, as ftfy does. JSON may contain unpaired surrogates, although they are not valid text.
std::string repair_surrogates(std::string line) {
  const auto unit_at = [&](std::size_t i) -> long {  // the code unit of the \uXXXX at i, or -1
    if (line.compare(i, 2, "\\u") != 0 || line.size() - i < 6) return -1;
    const std::string digits = line.substr(i + 2, 4);
    return digits.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos ? std::stol(digits, nullptr, 16)
                                                                                   : -1;
  };
  const auto is_in = [](long unit, long first) { return unit >= first && unit < first + 0x400; };
  for (std::size_t i = line.find('\\'); i < line.size(); i = line.find('\\', i)) {
    const long unit = unit_at(i);
    if (is_in(unit, 0xD800) && i + 6 < line.size() && is_in(unit_at(i + 6), 0xDC00)) {
      i += 12;
      continue;
    }
    if (is_in(unit, 0xD800) || is_in(unit, 0xDC00)) line.replace(i + 2, 4, "fffd");
    i += 2;
  }
  return line;
}

// Returns the text of one line: `utf8_hex` (raw bytes) if present, else `text`.
std::string read_text(const std::string& line, long long number) {
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(repair_surrogates(is_utf8(line) ? line : repair_utf8(line)));
  } catch (const nlohmann::json::parse_error& error) {
    user_error("standard input:", number, ": not JSON (byte ", error.byte,
               "); expected a line like {\"text\": \"a cat\"}");
  } catch (const nlohmann::json::out_of_range&) {
    user_error("standard input:", number, ": holds a number that is too large for any type");
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
  std::signal(SIGPIPE, SIG_DFL);  // ends quietly with its reader (| head), because nothing else is lost
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
    // flushes, because the process that writes this program's input may wait for the answer
    if (std::cin.rdbuf()->in_avail() <= 0) std::cout.flush();
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
      program.add_subcommand("tokenize", "Reads JSON lines {\"text\"} from standard input and writes {\"ids\"}.");
  app->footer(
      "The ids include the special tokens, but no padding. A line may have raw bytes as \"utf8_hex\" instead of \"text\". "
      "Blank lines are skipped.");
  app->add_option("--tokenizer", options->tokenizer, "clip-bpe, wordpiece or sentencepiece")->required();
  app->add_option("--vocab", options->vocabulary,
                  "vocabulary file, instead of --tokenizer-set merges=FILE, vocab=FILE or model=FILE");
  app->add_option("--context-length", options->context_length, "largest number of ids per text (default: the tokenizer's own)");
  add_overrides(*app, "--tokenizer-set,--set", options->settings,
                "a setting of the tokenizer by its name in the configuration, such as cleanup=full or add_eos=false");
  return {app, [options] { return tokenize(*options); }};
}

}  // namespace tessera::tools
