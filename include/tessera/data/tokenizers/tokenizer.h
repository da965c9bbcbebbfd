#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/batch.h>
#include <tessera/config/registry.h>

namespace tessera {

/// Converts text to token ids. Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// Returns the ids with the special tokens, cut to `context_length` so that the end token stays last; no padding. Bytes that
  /// are not UTF-8 become U+FFFD.
  virtual std::vector<std::int64_t> encode(std::string_view text) const = 0;
  /// Returns the number of ids of the whole text, including special tokens and regardless of `context_length`; at least as many
  /// as encode() returns. By default exactly as many: for a tokenizer that cannot count them, no text counts as cut. Of texts
  /// above 64 KiB a tokenizer may count only the beginning.
  virtual std::int64_t count_ids(std::string_view text) const { return std::ssize(encode(text)); }
  /// Returns the text of the ids, without special tokens.
  virtual std::string decode(const std::vector<std::int64_t>& ids) const = 0;
  virtual std::int64_t vocab_size() const = 0;
  virtual std::int64_t context_length() const = 0;
  virtual std::int64_t pad_id() const = 0;
  /// Whether the text tower treats padding as text (SigLIP); then encode_batch() returns masks that are true everywhere.
  virtual bool pad_is_text() const { return false; }
  /// Ids that do not represent text (padding, unknown, begin, end), ascending.
  virtual std::vector<std::int64_t> special_ids() const { return {}; }
  virtual std::string name() const = 0;
  /// The bytes of the vocabulary file(s) that define the ids; checkpoints contain them.
  virtual const std::string& vocabulary_bytes() const = 0;

  /// Encodes and pads. ids [B, context_length] int64; mask [B, context_length] from the lengths, never by comparing ids.
  TowerInput encode_batch(const std::vector<std::string>& texts) const;

 protected:
  static constexpr std::int64_t kAnyLength = std::int64_t{1} << 40;  // a context that every text fits into
};

/// Where the vocabulary comes from if not from the file that the settings name.
struct TokenizerContext {
  std::string vocabulary;  // bytes from a checkpoint; empty: read the file
  std::string missing;     // error message if there is neither; empty: "the setting is not set"
};

using TokenizerRegistry = config::Registry<Tokenizer, const TokenizerContext&>;
TokenizerRegistry& tokenizers();

}  // namespace tessera
