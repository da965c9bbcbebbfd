#pragma once

#include <string>

namespace tessera::json_tokenizer {

/// Makes the tokenizer.json that transformers makes from an older vocabulary file: vocab.json with merges.txt next to it (CLIP's
/// if words end in </w>, RoBERTa's if there is <s>, else GPT-2's), vocab.txt (BERT's), or a SentencePiece unigram model
/// (sentencepiece.bpe.model: XLM-RoBERTa's; others: T5's). Settings come from the tokenizer_config.json next to it. Returns the
/// file's `bytes` if it is none of these. Throws UserError naming a file that is missing or damaged.
std::string assembled(const std::string& path, std::string bytes);

}  // namespace tessera::json_tokenizer
