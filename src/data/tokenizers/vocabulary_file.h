#pragma once

#include <string>
#include <string_view>

#include <tessera/config/file_path.h>
#include <tessera/data/tokenizers/tokenizer.h>

namespace tessera {

/// The bytes of a tokenizer's vocabulary file, and its name in errors.
struct Vocabulary {
  std::string bytes;
  std::string origin;
};

/// Returns the vocabulary's bytes: those in the context, if it has any, or else those of the file at `path`. Throws UserError naming the
/// tokenizer and the settings key.
Vocabulary load_vocabulary(const std::string& tokenizer, const std::string& key, const config::FilePath& path,
                           const TokenizerContext& context);

/// Returns the vocabulary's text, decompressed if the vocabulary is gzip-compressed. Throws UserError if it is damaged, or is
/// named .gz but is not gzip.
std::string decompressed(const Vocabulary& vocabulary);

}  // namespace tessera
