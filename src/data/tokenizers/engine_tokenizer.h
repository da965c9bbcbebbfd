#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "src/data/tokenizers/json/pipeline.h"
#include "src/data/tokenizers/vocabulary_file.h"
#include <tessera/data/tokenizers/tokenizer.h>

namespace tessera {

/// What a setting of the configuration adds to the rules of its tokenizer.json.
struct EngineSettings {
  std::string name;  // the setting's name, for error messages
  std::int64_t context_length = 0;
  std::int64_t pad_id = 0;
  bool pad_is_text = false;
  std::int64_t zero_id = -1;  // the id to replace by 0; -1: none
  /// Returns the text to encode, as valid UTF-8: `text` itself, or a cleaned copy that the function stores in `room`.
  std::function<std::string_view(std::string_view text, std::string& room)> clean;
};

/// A tokenizer that runs on the engine for tokenizer.json. Thread-safe.
class EngineTokenizer : public Tokenizer {
 public:
  /// `file` holds the rules: a tokenizer.json, or what a preset (clip-bpe, wordpiece) makes of `vocabulary`. Throws UserError naming
  /// `vocabulary.origin` if the rules are damaged or not supported.
  EngineTokenizer(EngineSettings settings, Vocabulary vocabulary, const nlohmann::json& file);

  std::vector<std::int64_t> encode(std::string_view text) const override;
  std::int64_t count_ids(std::string_view text) const override;
  std::string decode(const std::vector<std::int64_t>& ids) const override;

  std::int64_t vocab_size() const override { return pipeline_.size(); }
  std::int64_t context_length() const override { return settings_.context_length; }
  std::int64_t pad_id() const override { return settings_.pad_id; }
  bool pad_is_text() const override { return settings_.pad_is_text; }
  std::vector<std::int64_t> special_ids() const override { return pipeline_.special_ids(); }
  std::string name() const override { return settings_.name; }
  const std::string& vocabulary_bytes() const override { return bytes_; }
  const json_tokenizer::Pipeline& pipeline() const { return pipeline_; }

 private:
  EngineSettings settings_;
  std::string bytes_;
  json_tokenizer::Pipeline pipeline_;
};

/// Returns the text, or a copy in `room` in which U+FFFD replaces the bytes that are not UTF-8. This is a `clean` for EngineSettings.
std::string_view repaired_utf8(std::string_view text, std::string& room);

}  // namespace tessera
