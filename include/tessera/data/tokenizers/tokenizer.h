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
  /// Returns the number of ids of the whole text, including special tokens and regardless of `context_length`. It is at least the number of
  /// ids that encode() returns. The default implementation returns the number of ids from encode(), so no text counts as cut. A tokenizer
  /// may count only the beginning of texts above 64 KiB.
  virtual std::int64_t count_ids(std::string_view text) const { return std::ssize(encode(text)); }
  /// Returns the text that the ids represent, without special tokens.
  virtual std::string decode(const std::vector<std::int64_t>& ids) const = 0;
  virtual std::int64_t vocab_size() const = 0;
  virtual std::int64_t context_length() const = 0;
  virtual std::int64_t pad_id() const = 0;
  /// Whether the text tower treats padding as text (SigLIP); then encode_batch() returns masks that are true everywhere.
  virtual bool pad_is_text() const { return false; }
  /// Ids that do not represent text (padding, unknown, begin, end), in ascending order.
  virtual std::vector<std::int64_t> special_ids() const { return {}; }
  virtual std::string name() const = 0;
  /// The bytes of the vocabulary file or files that define the ids. Checkpoints contain these bytes.
  virtual const std::string& vocabulary_bytes() const = 0;

  /// Encodes and pads the texts. Returns ids [B, context_length] int64 and mask [B, context_length]. The mask is computed from the texts'
  /// lengths, never by comparing ids.
  TowerInput encode_batch(const std::vector<std::string>& texts) const;

 protected:
  static constexpr std::int64_t kAnyLength = std::int64_t{1} << 40;  // a context length that every text fits into
};

/// A vocabulary to use instead of the file in a tokenizer's settings, and the error message if there is neither a vocabulary nor a file.
struct TokenizerContext {
  std::string vocabulary;  // the vocabulary's bytes from a checkpoint; empty: read the file
  std::string missing;     // error message if there are neither bytes nor a file; empty: "the setting is not set"
};

using TokenizerRegistry = config::Registry<Tokenizer, const TokenizerContext&>;
TokenizerRegistry& tokenizers();

}  // namespace tessera
