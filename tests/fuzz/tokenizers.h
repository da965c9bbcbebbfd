#pragma once
// Tokenizers for the fuzz targets, and what holds for each of them.

#include <memory>
#include <string>
#include <string_view>

#include <tessera/data/tokenizers/tokenizer.h>

namespace tessera::fuzz {

/// Ids lie in the vocabulary, are at most `context_length`, begin and end as they should, and follow from the text
/// alone.
void check_encoding(const Tokenizer& tokenizer, std::string_view text);

/// The bytes of a corpus file: "vocabulary/sentencepiece.model".
std::string corpus_file(const std::string& name);

inline const std::string clip_merges = TESSERA_SOURCE_DIR "/configs/vocabularies/clip-bpe/bpe_simple_vocab_16e6.txt.gz";
inline const std::string wordpiece_vocab = TESSERA_SOURCE_DIR "/tests/data/wordpiece-small/vocab.txt";

}  // namespace tessera::fuzz
