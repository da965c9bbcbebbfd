#include "tools/bench_tokenizer.h"

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>

#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>

#include "tools/command_line.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/data/source.h>
#include <tessera/data/tokenizers/tokenizer.h>
#include <tessera/io/atomic_file.h>
#include <tessera/measure/machine.h>
#include <tessera/report/markdown_table.h>

namespace tessera::tools {
namespace {

std::vector<std::string> read_captions(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> captions;
  for (std::string line; std::getline(file, line);) captions.push_back(std::move(line));
  if (captions.empty()) user_error("--captions ", path, ": cannot read, or empty; expected one caption a line");
  return captions;
}

std::vector<std::string> shapes_captions() {
  config::Node settings = config::Node::map();
  settings.set("size", config::Node::scalar("2000", {}));
  settings.set("image_size", config::Node::scalar("16", {}));
  const std::shared_ptr<Source> source = sources().make({"shapes", settings}, "source");
  std::vector<std::string> captions;
  for (std::int64_t i = 0; i < source->size(); ++i)
    for (std::string& caption : source->get(i).captions) captions.push_back(std::move(caption));
  return captions;
}

// Encodes all captions in as many threads as set; returns the number of ids.
std::int64_t encode_all(const Tokenizer& tokenizer, const std::vector<std::string>& captions) {
  constexpr std::int64_t grain = 64;
  std::atomic<std::int64_t> ids = 0;
  at::parallel_for(0, static_cast<std::int64_t>(captions.size()), grain, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t own = 0;
    for (std::int64_t i = begin; i < end; ++i)
      own += static_cast<std::int64_t>(tokenizer.encode(captions[static_cast<std::size_t>(i)]).size());
    ids += own;
  });
  return ids;
}

double per(double amount, std::size_t count) {
  return amount / static_cast<double>(count);
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
  const std::vector<std::string> captions = captions_.empty() ? shapes_captions() : read_captions(captions_);
  std::vector<std::shared_ptr<Tokenizer>> made;
  std::vector<config::ModuleSettings> choices;
  for (const std::string& text : tokenizers_) {
    choices.push_back(config::Value<config::ModuleSettings>::read(config::parse_yaml(text, "--tokenizers"), "tokenizer", {}));
    tokenizers().resolve(choices.back(), "tokenizer");
    made.push_back(tokenizers().make(choices.back(), "tokenizer", TokenizerContext{}));
  }
  std::size_t bytes = 0;
  for (const std::string& caption : captions) bytes += caption.size();

  at::set_num_threads(threads_);
  std::vector<std::vector<std::string>> rows;
  nlohmann::json list = nlohmann::json::array();
  for (std::size_t i = 0; i < made.size(); ++i) {
    const Tokenizer& tokenizer = *made[i];
    std::int64_t ids = 0;
    const double seconds = median_seconds(
        at::kCPU, [&] { ids = encode_all(tokenizer, captions); }, repeats_, time_limit_);
    const double rate = static_cast<double>(captions.size()) / seconds;
    rows.push_back({tokenizer.name(), report::three_digits(per(static_cast<double>(ids), captions.size())),
                    with_thousands(std::llround(rate)), with_thousands(std::llround(rate / threads_)),
                    report::three_digits(static_cast<double>(bytes) / seconds / 1e6)});
    list.push_back({{"name", tokenizer.name()},
                    {"tokenizer", tokenizers_[i]},
                    {"ids_per_caption", per(static_cast<double>(ids), captions.size())},
                    {"seconds", seconds},
                    {"captions_per_second", rate},
                    {"captions_per_second_per_thread", rate / threads_}});
  }
  const std::string machine = machine_name(at::kCPU);
  std::cout << "Machine: " << machine << ". " << with_thousands(static_cast<long long>(captions.size()))
            << " captions of " << report::three_digits(per(static_cast<double>(bytes), captions.size()))
            << " bytes on average.\n\n"
            << report::markdown_table({"Tokenizer", "ids each", "captions/s", "per thread", "MB/s"}, rows);
  if (!json_.empty())
    io::write_file(json_, nlohmann::json{{"machine", machine},
                                         {"threads", threads_},
                                         {"captions", captions.size()},
                                         {"bytes", bytes},
                                         {"tokenizers", list}}
                                  .dump(2) +
                              "\n");
  return 0;
}

}  // namespace tessera::tools
