#pragma once

#include <string>
#include <string_view>

namespace tessera {

/// What OpenCLIP and transformers do to a caption before a tokenizer of SentencePiece's or Hugging Face's kind, by name:
/// none; whitespace (ftfy's repairs, entities, white space collapsed); lower (and lower case); canonicalize (and no ASCII
/// punctuation, `_` a space); siglip (lower case, no punctuation, white space collapsed, and no repairs: transformers'
/// SiglipTokenizer).
std::string cleaned_caption(std::string_view text, const std::string& cleanup);

}  // namespace tessera
