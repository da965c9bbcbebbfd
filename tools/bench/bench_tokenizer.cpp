#include <fstream>
#include <iostream>
#include <memory>

#include "tools/bench/data_benchmarks.h"
#include "tools/bench/tokenizer_bench.h"
#include "tools/command_line.h"
#include <tessera/base/error.h>
#include <tessera/io/atomic_file.h>

namespace tessera::tools {
namespace {

struct TokenizerOptions {
  std::vector<std::string> tokenizers = {"clip-bpe"};
  std::string captions, json;
  int threads = 1, repeats = 9;
  double time_limit = 20;
};

std::vector<std::string> read_captions(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> captions;
  for (std::string line; std::getline(file, line);) captions.push_back(std::move(line));
  if (captions.empty()) user_error("--captions ", path, ": cannot read, or empty; expected one caption per line");
  return captions;
}

int run_tokenizers(const TokenizerOptions& options) {
  check_folder_of("--json", options.json);
  bench::TokenizerBenchSettings settings;
  settings.captions = options.captions.empty() ? bench::shapes_captions() : read_captions(options.captions);
  settings.threads = options.threads;
  settings.repeats = options.repeats;
  settings.time_limit = options.time_limit;
  for (const std::string& text : options.tokenizers) {
    auto choice =
        config::Value<config::ModuleSettings>::read(config::parse_yaml(text, "--tokenizers"), "tokenizer", {});
    tokenizers().resolve(choice, "tokenizer");
    settings.choices.push_back({text, tokenizers().make(choice, "tokenizer", TokenizerContext{})});
  }
  const bench::TokenizerBench measured = measure_tokenizers(settings);
  std::cout << to_markdown(measured);
  if (!options.json.empty()) io::write_file(options.json, to_json(measured));
  return 0;
}

}  // namespace

std::function<int()> add_tokenizer_benchmark(CLI::App& command) {
  auto options = std::make_shared<TokenizerOptions>();
  command.option_defaults()->take_last();
  command
      .add_option("--tokenizers", options->tokenizers,
                  "tokenizers, as in a configuration's `tokenizer`: '{name: wordpiece, vocab: bert-base-uncased/vocab.txt}'")
      ->take_all();
  command
      .add_option("--captions", options->captions,
                  "text file with one caption per line (default: the captions of the built-in shapes)")
      ->type_name("FILE");
  add_default(command, "--threads", options->threads, "threads that share the captions")->check(CLI::Range(1, 4096));
  add_default(command, "--repeats", options->repeats, "timed runs over all captions; their median is reported")
      ->check(CLI::Range(1, 100000));
  add_default(command, "--time-limit", options->time_limit, "seconds that one tokenizer's runs may take")
      ->check(positive_number());
  command.add_option("--json", options->json, "also write the measurements to this file")->type_name("FILE");
  command.footer(
      "Encodes captions one by one, without padding, truncated at the tokenizer's length. scripts/compare/token_ids.py\n"
      "compares with the tokenizers of OpenCLIP and Hugging Face.\n\n"
      "  tessera-bench tokenizer\n"
      "  tessera-bench tokenizer --captions captions.txt --threads 4 --tokenizers '{name: sentencepiece, model: "
      "spm.model}'");
  return [options] { return run_tokenizers(*options); };
}

}  // namespace tessera::tools
