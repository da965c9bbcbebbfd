#include <algorithm>

#include "src/data/tokenizers/caption_cleanup.h"
#include "src/data/tokenizers/json/assembled.h"
#include "src/data/tokenizers/json/pipeline.h"
#include "src/data/tokenizers/tokenizer_config.h"
#include "src/data/tokenizers/tokenizer_json.h"
#include "src/data/tokenizers/vocabulary_file.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

using nlohmann::json;

class TokenizerJson : public Tokenizer {
 public:
  TokenizerJson(const TokenizerJsonSettings& settings, Vocabulary vocabulary, const json& file)
      : settings_(settings), bytes_(std::move(vocabulary.bytes)), pipeline_(file, vocabulary.origin) {
    const std::size_t most = pipeline_.ends().size();
    const std::size_t room = std::min(static_cast<std::size_t>(settings.context_length), pipeline_.longest());
    if (room <= most)
      user_error(vocabulary.origin, ": context_length ", room, " leaves no room for text next to ", most, " special tokens");
  }

  std::vector<std::int64_t> encode(std::string_view given) const override {
    const auto most = static_cast<std::size_t>(settings_.context_length);
    std::vector<std::int64_t> ids = is_clean(given) ? pipeline_.encode(given, most) : pipeline_.encode(cleaned(given), most);
    if (settings_.zero_id >= 0) std::replace(ids.begin(), ids.end(), settings_.zero_id, std::int64_t{0});
    return ids;
  }

  std::int64_t count_ids(std::string_view given) const override {
    return std::ssize(is_clean(given) ? pipeline_.encode_whole(given) : pipeline_.encode_whole(cleaned(given)));
  }

  std::string decode(const std::vector<std::int64_t>& ids) const override {
    for (const std::int64_t id : ids)
      if (id < 0 || id >= vocab_size()) user_error("tokenizer_json: id ", id, " is not in 0..", vocab_size() - 1);
    const std::vector<std::int64_t>& behind = pipeline_.ends().behind;
    const auto end = behind.empty() ? ids.end() : std::find(ids.begin(), ids.end(), behind.back());
    return pipeline_.decode({ids.begin(), end});
  }

  std::int64_t vocab_size() const override { return pipeline_.size(); }
  std::int64_t context_length() const override { return settings_.context_length; }
  std::int64_t pad_id() const override { return settings_.pad_id; }
  bool pad_is_text() const override { return settings_.pad_is_text; }
  std::vector<std::int64_t> special_ids() const override { return pipeline_.special_ids(); }
  std::string name() const override { return "tokenizer_json"; }
  const std::string& vocabulary_bytes() const override { return bytes_; }

 private:
  bool is_clean(std::string_view given) const { return settings_.cleanup == "none" && is_utf8(given); }

  std::string cleaned(std::string_view given) const {
    return cleaned_caption(is_utf8(given) ? std::string(given) : repair_utf8(given), settings_.cleanup);
  }

  TokenizerJsonSettings settings_;
  std::string bytes_;
  json_tokenizer::Pipeline pipeline_;
};

}  // namespace

std::shared_ptr<Tokenizer> make_tokenizer_json(const TokenizerJsonSettings& settings, const TokenizerContext& context) {
  const bool from_file = context.vocabulary.empty() && !settings.model.empty();
  Vocabulary vocabulary = load_vocabulary("tokenizer_json", "model", settings.model, context);
  const std::string origin = vocabulary.origin;
  try {
    if (from_file) vocabulary.bytes = json_tokenizer::assembled(settings.model.name, std::move(vocabulary.bytes));
    const json file = parse_json_object(vocabulary.bytes, origin);
    return std::make_shared<TokenizerJson>(settings, std::move(vocabulary), file);
  } catch (const json::exception& error) {
    user_error(origin, ": is not a tokenizer.json, or is damaged: ", error.what());
  }
}

}  // namespace tessera
