#pragma once

#include <string>
#include <string_view>

#include <tessera/config/file_path.h>
#include <tessera/data/tokenizers/tokenizer.h>

namespace tessera {

/// A tokenizer's vocabulary as it lies in its file, and what errors call it.
struct Vocabulary {
  std::string bytes;
  std::string origin;
};

/// The context's bytes, or the file at `path`. Throws UserError naming the tokenizer and the settings key.
Vocabulary load_vocabulary(const std::string& tokenizer, const std::string& key, const config::FilePath& path,
                           const TokenizerContext& context);

/// The vocabulary's text: decompressed if it is gzip. Throws UserError if it is damaged, or named .gz and is not gzip.
std::string decompressed(const Vocabulary& vocabulary);

}  // namespace tessera
