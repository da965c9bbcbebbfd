#pragma once

#include <string>
#include <string_view>

namespace tessera {

/// Cleans a caption as OpenCLIP and transformers do before a SentencePiece or Hugging Face tokenizer. cleanup: none; whitespace
/// (applies ftfy's repairs, unescapes entities, collapses white space); lower (in addition, lower case); canonicalize (in
/// addition, removes ASCII punctuation, and turns `_` into a space); siglip (transformers' SiglipTokenizer: lower case, no
/// punctuation, collapsed white space, but no repairs).
std::string cleaned_caption(std::string_view text, const std::string& cleanup);

}  // namespace tessera
