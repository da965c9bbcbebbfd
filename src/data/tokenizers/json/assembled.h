#pragma once

#include <string>

namespace tessera::json_tokenizer {

/// The tokenizer.json that transformers makes of an older vocabulary file: of vocab.json with the merges.txt beside it
/// (CLIP's where words end in </w>, RoBERTa's where there is <s>, else GPT-2's), of vocab.txt (BERT's), or of a SentencePiece
/// unigram model (sentencepiece.bpe.model: XLM-RoBERTa's; others: T5's); settings as the tokenizer_config.json beside it says.
/// Returns `bytes`, the file's, if it is none of these. Throws UserError naming a file that is missing or damaged.
std::string assembled(const std::string& path, std::string bytes);

}  // namespace tessera::json_tokenizer
