#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tessera/data/tokenizers/tokenizer.h>

namespace tessera::bench {

/// All captions of 2,000 samples of the built-in shapes.
std::vector<std::string> shapes_captions();

struct TokenizerBenchSettings {
  struct Choice {
    std::string described;  // as the user named it
    std::shared_ptr<const Tokenizer> tokenizer;
  };
  std::vector<Choice> choices;
  std::vector<std::string> captions;
  int threads = 1;         // that share the captions
  int repeats = 9;         // timed runs over all captions, of which the median counts
  double time_limit = 20;  // seconds that the runs of one tokenizer may take
};

/// What one tokenizer takes for all captions: ids of single captions, without padding, cut at its length.
struct TokenizerCost {
  std::string name, described;
  double ids_per_caption = 0;
  double seconds = 0;
  double processor_seconds = 0;  // of all threads, the median run's: other programs on the machine hardly change it
};

struct TokenizerBench {
  std::string machine;
  int threads = 1;
  std::int64_t captions = 0, bytes = 0;  // bytes: of all captions
  std::vector<TokenizerCost> costs;
};

/// Sets the number of LibTorch's threads.
TokenizerBench measure_tokenizers(const TokenizerBenchSettings& settings);

std::string to_markdown(const TokenizerBench& bench);
std::string to_json(const TokenizerBench& bench);

}  // namespace tessera::bench
