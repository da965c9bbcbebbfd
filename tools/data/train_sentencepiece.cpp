#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/data/tokenizers/sentencepiece.h"
#include "tools/command_line.h"
#include "tools/data/command.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/data/source.h>
#include <tessera/io/atomic_file.h>

namespace tessera::tools {
namespace {

struct TrainOptions {
  std::string input;
  std::string source;
  std::vector<std::string> settings;
  std::int64_t samples = 20'000;
  SentencePieceTraining training;
  std::string out;
};

std::string train_on_lines(const TrainOptions& options) {
  std::ifstream file;
  if (options.input != "-") {
    file.open(options.input);
    if (!file) user_error("--input: ", options.input, ": cannot read");
  }
  std::istream& in = options.input == "-" ? std::cin : file;
  return train_sentencepiece(options.training,
                             [&](std::string& line) { return static_cast<bool>(std::getline(in, line)); });
}

/// Iterates over the captions of some samples of a source. Counts and skips samples without a readable caption.
class Captions {
 public:
  Captions(const IndexedSource& source, std::int64_t samples)
      : source_(source), count_(std::min(samples, source.size())) {}

  bool next(std::string& line) {
    while (waiting_.empty() && index_ < count_) read(index_++);
    if (waiting_.empty()) return false;
    line = std::move(waiting_.back());
    waiting_.pop_back();
    return true;
  }

  /// Warns about samples without a caption; throws UserError if no sample had one.
  void report() const {
    std::int64_t total = 0;
    for (const auto& [reason, count] : left_out_) total += count;
    if (total == 0) return;
    const std::string text = concat(source_.describe(), ": ", with_thousands(total), " of ", with_thousands(count_),
                                    " samples have no caption that can be read (", describe_counts(left_out_), ")",
                                    first_.empty() ? "" : "; the first: ", first_);
    if (total < count_) return log::warning(text);
    const std::string where = source_.describe_fields({"caption"});
    user_error(text, where.empty() ? "" : ". " + where);
  }

 private:
  void read(std::int64_t place) {
    try {
      // The samples are spread over the whole source, because it may be sorted.
      waiting_ = source_.captions(place * source_.size() / count_);
      if (waiting_.empty()) ++left_out_["no_caption"];
    } catch (const SampleError& error) {
      ++left_out_[error.reason()];
      if (first_.empty()) first_ = error.what();
    }
  }

  const IndexedSource& source_;
  const std::int64_t count_;
  std::int64_t index_ = 0;
  std::vector<std::string> waiting_;
  std::map<std::string, std::int64_t> left_out_;
  std::string first_;
};

std::string train_on_source(const TrainOptions& options) {
  const std::shared_ptr<const IndexedSource> source =
      indexed(sources().make({options.source, settings_of(options.settings)}, "--source"));
  Captions captions(*source, options.samples);
  const auto next = [&](std::string& line) {
    const bool found = captions.next(line);
    if (!found) captions.report();
    return found;
  };
  return train_sentencepiece(options.training, next);
}

int train(const TrainOptions& options) {
  if (options.input.empty() == options.source.empty()) user_error("give either --input or --source");
  io::write_file(options.out, options.input.empty() ? train_on_source(options) : train_on_lines(options));
  std::cout << options.out << ": " << with_thousands(options.training.vocab_size) << " pieces\n";
  return 0;
}

}  // namespace

Command train_sentencepiece_command(CLI::App& program) {
  const auto options = std::make_shared<TrainOptions>();
  CLI::App* app = program.add_subcommand("train-sentencepiece", "Trains a SentencePiece model on captions.");
  app->footer("The same input yields the same bytes. SPARC uses 32,000 pieces; the captions of shapes need 200 to 500.");
  app->add_option("--input", options->input, "text file with one caption per line; - is standard input");
  app->add_option("--source", options->source, "instead of --input: registered name of a data source, to train on its captions");
  add_overrides(*app, "--set", options->settings, "a setting of the source");
  add_default(*app, "--samples", options->samples, "number of samples taken from the source")->check(positive_number());
  app->add_option("--vocab-size", options->training.vocab_size, "number of pieces")
      ->required()
      ->check(positive_number());
  add_default(*app, "--model-type", options->training.model_type, "unigram or bpe")
      ->check(CLI::IsMember({"unigram", "bpe"}));
  add_default(*app, "--character-coverage", options->training.character_coverage,
              "share of the characters that get a piece; the others become the unknown token")
      ->check(CLI::Range(0.98, 1.0));
  app->add_option("--out", options->out, "the model file to write")->required();
  return {app, [options] { return train(*options); }};
}

}  // namespace tessera::tools
