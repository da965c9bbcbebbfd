#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace tessera::tools {

/// `tessera-bench tokenizer`: captions per second of each tokenizer.
class TokenizerBench {
 public:
  void add_to(CLI::App& command);
  int run();

 private:
  std::vector<std::string> tokenizers_ = {
      "{name: clip-bpe, merges: configs/vocabularies/clip-bpe/bpe_simple_vocab_16e6.txt.gz}"};
  std::string captions_, json_;
  int threads_ = 1, repeats_ = 9;
  double time_limit_ = 20;
};

}  // namespace tessera::tools
