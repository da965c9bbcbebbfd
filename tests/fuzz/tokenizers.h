#pragma once
// Vocabulary files for the fuzz targets, and the checks that every tokenizer must pass.

#include <memory>
#include <string>
#include <string_view>

#include <tessera/data/tokenizers/tokenizer.h>

namespace tessera::fuzz {

/// Checks that the ids of a text are in the vocabulary, that there are at most `context_length`, that they start and end with the special
/// tokens, and that bytes that are not UTF-8 are read as U+FFFD.
void check_encoding(const Tokenizer& tokenizer, std::string_view text);

/// Returns the bytes of a corpus file such as "vocabulary/unigram.model".
std::string corpus_file(const std::string& name);

inline const std::string clip_merges = TESSERA_SOURCE_DIR "/configs/vocabularies/clip-bpe/bpe_simple_vocab_16e6.txt.gz";
inline const std::string wordpiece_vocab = TESSERA_SOURCE_DIR "/tests/data/wordpiece-small/vocab.txt";

}  // namespace tessera::fuzz
