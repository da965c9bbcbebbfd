#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "src/data/tokenizers/tokenizer_config.h"

namespace tessera::json_tokenizer {

/// Makes the tokenizer.json that transformers makes from an older vocabulary file. The file may be vocab.json with merges.txt
/// next to it (CLIP's if words end in </w>, RoBERTa's if there is <s>, otherwise GPT-2's), vocab.txt (BERT's), or a
/// SentencePiece unigram model (XLM-RoBERTa's if its name is sentencepiece.bpe.model, otherwise T5's). In a tokenizer.json, sets the parts
/// that its class in transformers 5 makes itself (Siglip2Tokenizer converts to lower case, although its files do not say so). Class and
/// settings come from the tokenizer_config.json next to the file. For any other file, returns its `bytes` unchanged. Throws UserError
/// naming a file that is missing or damaged.
std::string assembled(const std::string& path, std::string bytes);

/// Returns BERT's tokenizer.json. `pieces` are the lines of vocab.txt, as UTF-8. `config` may change the special tokens and the cleaning.
/// Throws UserError naming `path` if a special token is not among the pieces.
nlohmann::json of_word_pieces(const std::vector<std::string>& pieces, const TokenizerConfig& config, const std::string& path);

/// These functions make parts of a tokenizer.json: GPT-2's conversion of bytes to characters, and CLIP's normalizer and pre-tokenizer.
nlohmann::json byte_level(bool prefix_space);
nlohmann::json clip_normalizer();
nlohmann::json clip_pre_tokenizer();

}  // namespace tessera::json_tokenizer
