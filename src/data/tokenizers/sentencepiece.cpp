#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>
#include <unordered_map>

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include "src/data/tokenizers/caption_cleanup.h"
#include "src/data/tokenizers/sentencepiece.h"
#include "src/data/tokenizers/sentencepiece_model.h"
#include "src/data/tokenizers/vocabulary_file.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

class SentencePiece : public Tokenizer {
 public:
  SentencePiece(const SentencePieceSettings& settings, Vocabulary vocabulary)
      : settings_(settings),
        model_(load_sentencepiece(vocabulary.bytes, vocabulary.origin).processor),
        bytes_(std::move(vocabulary.bytes)) {
    if (settings.add_bos && model_->bos_id() < 0)
      user_error(vocabulary.origin, ": add_bos is true, but the model has no begin token");
    if (settings.add_eos && model_->eos_id() < 0)
      user_error(vocabulary.origin, ": add_eos is true, but the model has no end token");
    if (settings.pad_id >= vocab_size())
      user_error(vocabulary.origin, ": pad_id is ", settings.pad_id, ", but the model has ", vocab_size(), " pieces");
  }

  std::vector<std::int64_t> encode(std::string_view text) const override {
    return encode(text, settings_.context_length);
  }
  std::int64_t count_ids(std::string_view text) const override { return std::ssize(encode(text, kAnyLength)); }

  std::string decode(const std::vector<std::int64_t>& ids) const override {
    std::vector<int> pieces;
    for (const std::int64_t id : ids) {
      if (id < 0 || id >= vocab_size()) user_error("sentencepiece: id ", id, " is not in 0..", vocab_size() - 1);
      if (id == model_->eos_id()) break;
      if (id != model_->bos_id()) pieces.push_back(static_cast<int>(id));
    }
    std::string text;
    if (const auto status = model_->Decode(pieces, &text); !status.ok())
      user_error("sentencepiece: ", status.ToString());
    return text;
  }

  std::int64_t vocab_size() const override { return model_->GetPieceSize(); }
  std::int64_t context_length() const override { return settings_.context_length; }
  std::int64_t pad_id() const override { return settings_.pad_id; }
  bool pad_is_text() const override { return settings_.pad_is_text; }
  std::vector<std::int64_t> special_ids() const override {
    std::vector<std::int64_t> ids;
    for (int id = 0; id < model_->GetPieceSize(); ++id)
      if (model_->IsControl(id) || model_->IsUnknown(id)) ids.push_back(id);
    return ids;
  }
  std::string name() const override { return "sentencepiece"; }
  const std::string& vocabulary_bytes() const override { return bytes_; }

 private:
  std::vector<std::int64_t> encode(std::string_view given, std::int64_t most) const {
    const std::string cleaned = settings_.cleanup == "none" ? "" : cleaned_caption(given, settings_.cleanup);
    const std::string_view text = beginning(settings_.cleanup == "none" ? given : cleaned);
    std::vector<int> pieces;
    // The library reports errors as a status. Valid UTF-8 causes no errors.
    const auto status =
        is_utf8(text) ? model_->Encode(text, &pieces) : model_->Encode(repair_utf8(text), &pieces);
    if (!status.ok()) user_error("sentencepiece: ", status.ToString());
    std::vector<std::int64_t> ids;
    if (settings_.add_bos) ids.push_back(model_->bos_id());
    ids.insert(ids.end(), pieces.begin(), pieces.end());
    const auto limit = static_cast<std::size_t>(most - (settings_.add_eos ? 1 : 0));
    if (ids.size() > limit) ids.resize(limit);
    if (settings_.add_eos) ids.push_back(model_->eos_id());
    return ids;
  }

  // Shortens very long texts, because the library takes quadratic time for runs of characters that the model lacks. The text
  // that is cut off does not affect the ids that are kept, unless almost all text before it is white space.
  std::string_view beginning(std::string_view text) const {
    constexpr std::size_t least = 1 << 16, each = 64;
    const std::size_t most = std::max(least, each * static_cast<std::size_t>(settings_.context_length));
    if (text.size() <= most) return text;
    std::size_t end = text.find_last_of(" \t\r\n", most);
    if (end == std::string_view::npos || end < most / 2)
      for (end = most; end > most - 4 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80;) --end;
    return text.substr(0, end);
  }

  SentencePieceSettings settings_;
  std::shared_ptr<const sentencepiece::SentencePieceProcessor> model_;
  std::string bytes_;
};

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

std::shared_ptr<Tokenizer> make_sentencepiece(const SentencePieceSettings& settings, const TokenizerContext& context) {
  return std::make_shared<SentencePiece>(settings, load_vocabulary("sentencepiece", "model", settings.model, context));
}

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
