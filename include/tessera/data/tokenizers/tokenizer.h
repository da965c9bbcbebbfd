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

/// Text to token ids. Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// Ids with the special tokens, cut to `context_length` so that the end token stays last; no padding. Bytes that are not
  /// UTF-8 become U+FFFD.
  virtual std::vector<std::int64_t> encode(std::string_view text) const = 0;
  /// How many ids the whole text has, special ones included, whatever `context_length`; at least as many as encode()
  /// gives. By default as many: of a tokenizer that cannot tell, no text counts as cut.
  virtual std::int64_t count_ids(std::string_view text) const { return std::ssize(encode(text)); }
  /// Text of the ids, special tokens left out.
  virtual std::string decode(const std::vector<std::int64_t>& ids) const = 0;
  virtual std::int64_t vocab_size() const = 0;
  virtual std::int64_t context_length() const = 0;
  virtual std::int64_t pad_id() const = 0;
  /// Whether the text tower sees padding as text (SigLIP), so that encode_batch() gives masks that are true everywhere.
  virtual bool pad_is_text() const { return false; }
  /// Ids that stand for no text (padding, unknown, begin, end), ascending.
  virtual std::vector<std::int64_t> special_ids() const { return {}; }
  virtual std::string name() const = 0;
  /// The bytes of the vocabulary file(s) that define the ids; a checkpoint carries them.
  virtual const std::string& vocabulary_bytes() const = 0;

  /// Encodes and pads. ids [B, context_length] int64, mask [B, context_length] by length, never by comparing ids.
  TowerInput encode_batch(const std::vector<std::string>& texts) const;

 protected:
  static constexpr std::int64_t kAnyLength = std::int64_t{1} << 40;  // a context that every text fits into
};

/// Where the vocabulary comes from when it is not the file that the settings name.
struct TokenizerContext {
  std::string vocabulary;  // bytes out of a checkpoint; empty: read the file
  std::string missing;     // what is said where there is neither; empty: that the setting is not set
};

using TokenizerRegistry = config::Registry<Tokenizer, const TokenizerContext&>;
TokenizerRegistry& tokenizers();

}  // namespace tessera
