#pragma once

#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "src/data/tokenizers/engine_tokenizers.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

/// Reference cases and vocabularies that several tests use.
namespace tessera::test {

inline const std::string clip_merges = TESSERA_SOURCE_DIR "/configs/vocabularies/clip-bpe/bpe_simple_vocab_16e6.txt.gz";
inline const std::string wordpiece_vocab = test_data("wordpiece-small/vocab.txt");

inline std::shared_ptr<Tokenizer> clip_bpe(const std::string& cleanup = "basic", std::int64_t context_length = 77) {
  return make_clip_bpe({clip_merges, context_length, cleanup}, {});
}

inline std::shared_ptr<Tokenizer> wordpiece(std::int64_t context_length = 76, bool lower_case = true) {
  return make_wordpiece({wordpiece_vocab, context_length, lower_case}, {});
}

inline std::vector<nlohmann::json> golden_lines(const std::string& name) {
  std::ifstream in(test_data("golden/tokenizers/" + name));
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  if (lines.empty()) throw std::runtime_error("no reference cases in " + name);
  return lines;
}

/// Returns the bytes of a case's text.
inline std::string text_of(const nlohmann::json& line) {
  if (!line.contains("utf8_hex")) return line.at("text").get<std::string>();
  const auto hex = line.at("utf8_hex").get<std::string>();
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

using Ids = std::vector<std::int64_t>;

}  // namespace tessera::test
