#include <algorithm>

#include <sentencepiece_processor.h>

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

}  // namespace

std::shared_ptr<Tokenizer> make_sentencepiece(const SentencePieceSettings& settings, const TokenizerContext& context) {
  return std::make_shared<SentencePiece>(settings, load_vocabulary("sentencepiece", "model", settings.model, context));
}

}  // namespace tessera
