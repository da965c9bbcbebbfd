#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tessera/data/tokenizers/tokenizer.h>

namespace tessera::bench {

/// Returns all captions of 2,000 samples of the built-in shapes.
std::vector<std::string> shapes_captions();

struct TokenizerBenchSettings {
  struct Choice {
    std::string described;  // the tokenizer as the user described it
    std::shared_ptr<const Tokenizer> tokenizer;
  };
  std::vector<Choice> choices;
  std::vector<std::string> captions;
  int threads = 1;         // number of threads that share the captions
  int repeats = 9;         // timed runs over all captions; the median is reported
  double time_limit = 20;  // seconds for all runs of one tokenizer
};

/// The cost of encoding all captions with one tokenizer. Captions are encoded one by one, without padding, and cut at the tokenizer's
/// context length.
struct TokenizerCost {
  std::string name, described;
  double ids_per_caption = 0;
  double seconds = 0;
  double processor_seconds = 0;  // CPU time of all threads, median over runs; other programs hardly affect this time
};

struct TokenizerBench {
  std::string machine;
  int threads = 1;
  std::int64_t captions = 0, bytes = 0;  // number of captions, and number of bytes in all of them
  std::vector<TokenizerCost> costs;
};

/// Measures the tokenizers. Sets LibTorch's number of threads.
TokenizerBench measure_tokenizers(const TokenizerBenchSettings& settings);

std::string to_markdown(const TokenizerBench& bench);
std::string to_json(const TokenizerBench& bench);

}  // namespace tessera::bench
