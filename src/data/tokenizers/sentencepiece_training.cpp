#include <cctype>
#include <optional>
#include <string_view>
#include <unordered_map>

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include "src/data/tokenizers/sentencepiece.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

class Sentences : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::function<bool(std::string&)>& next) : next_(next) { Next(); }
  bool done() const override { return done_; }
  void Next() override {
    do {
      done_ = !next_(value_);
    } while (!done_ && strip(value_).empty());
    if (done_) return;
    if (!is_utf8(value_)) value_ = repair_utf8(value_);
    ++count_;
  }
  const std::string& value() const override { return value_; }
  sentencepiece::util::Status status() const override { return {}; }
  std::int64_t count() const { return count_; }

 private:
  const std::function<bool(std::string&)>& next_;
  std::string value_;
  std::int64_t count_ = 0;
  bool done_ = false;
};

// Returns the number after `marker`; nullopt if the text contains no such number.
std::optional<std::int64_t> number_after(std::string_view text, std::string_view marker) {
  const std::size_t at = text.find(marker);
  if (at == std::string_view::npos) return std::nullopt;
  std::size_t i = at + marker.size();
  std::optional<std::int64_t> value;
  for (; i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0; ++i)
    value = value.value_or(0) * 10 + (text[i] - '0');
  return value;
}

}  // namespace

std::string train_sentencepiece(const SentencePieceTraining& training, const std::function<bool(std::string&)>& next) {
  Sentences sentences(next);
  if (sentences.done()) user_error("nothing to train on: the input holds no text");
  const std::unordered_map<std::string, std::string> arguments = {
      {"vocab_size", std::to_string(training.vocab_size)},
      {"model_type", training.model_type},
      {"character_coverage", std::to_string(training.character_coverage)},
      {"num_threads", "1"},  // fixed, because float sums depend on the number of threads, and the model depends on these sums
      {"max_sentence_length", "1000000"},
      {"minloglevel", "2"},
  };
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(arguments, &sentences, &model);
  if (status.ok()) return model;
  const std::string text = status.ToString();
  if (const auto smallest =
          number_after(text, "smaller than required_chars. " + std::to_string(training.vocab_size) + " vs "))
    user_error("a vocabulary of ", training.vocab_size, " pieces is too small: the characters alone need ", *smallest);
  if (const auto largest = number_after(text, "Please set it to a value <= "))
    user_error("a vocabulary of ", training.vocab_size, " pieces is too large for these ", sentences.count(),
               " sentences: try ", *largest);
  user_error("SentencePiece cannot train on this: ", text);
}

}  // namespace tessera
