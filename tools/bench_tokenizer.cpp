#include "tools/bench_tokenizer.h"

#include <filesystem>
#include <fstream>
#include <iostream>

#include "tools/command_line.h"
#include <tessera/base/error.h>
#include <tessera/bench/tokenizer_bench.h>
#include <tessera/io/atomic_file.h>

namespace tessera::tools {
namespace {

std::vector<std::string> read_captions(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> captions;
  for (std::string line; std::getline(file, line);) captions.push_back(std::move(line));
  if (captions.empty()) user_error("--captions ", path, ": cannot read, or empty; expected one caption a line");
  return captions;
}

}  // namespace

void TokenizerBench::add_to(CLI::App& command) {
  command.option_defaults()->take_last();
  command
      .add_option("--tokenizers", tokenizers_,
                  "as in a configuration's `tokenizer`: '{name: wordpiece, vocab: bert-base-uncased/vocab.txt}'")
      ->take_all();
  command.add_option("--captions", captions_, "a text file, one caption a line; default: those of the built-in shapes")
      ->type_name("FILE");
  command.add_option("--threads", threads_, "threads that share the captions")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command.add_option("--repeats", repeats_, "timed runs over all captions, of which the median is given")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command.add_option("--time-limit", time_limit_, "seconds that one tokenizer's runs may take")
      ->check(positive_number())
      ->capture_default_str();
  command.add_option("--json", json_, "also write the measurements to this file")->type_name("FILE");
  command.footer(
      "Ids of single captions, without padding, cut at the tokenizer's length. Beside OpenCLIP's and Hugging Face's:\n"
      "scripts/compare_tokenizers.py.\n\n"
      "  tessera-bench tokenizer\n"
      "  tessera-bench tokenizer --captions captions.txt --threads 4 --tokenizers '{name: sentencepiece, model: "
      "spm.model}'");
}

int TokenizerBench::run() {
  const std::filesystem::path folder = std::filesystem::path(json_).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder))
    user_error("--json ", json_, ": there is no folder ", folder.string());
  bench::TokenizerBenchSettings settings;
  settings.captions = captions_.empty() ? bench::shapes_captions() : read_captions(captions_);
  settings.threads = threads_;
  settings.repeats = repeats_;
  settings.time_limit = time_limit_;
  for (const std::string& text : tokenizers_) {
    auto choice =
        config::Value<config::ModuleSettings>::read(config::parse_yaml(text, "--tokenizers"), "tokenizer", {});
    tokenizers().resolve(choice, "tokenizer");
    settings.choices.push_back({text, tokenizers().make(choice, "tokenizer", TokenizerContext{})});
  }
  const bench::TokenizerBench measured = measure_tokenizers(settings);
  std::cout << to_markdown(measured);
  if (!json_.empty()) io::write_file(json_, to_json(measured));
  return 0;
}

}  // namespace tessera::tools
