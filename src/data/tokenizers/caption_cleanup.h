#pragma once

#include <string>
#include <string_view>

namespace tessera {

/// Cleans a caption as OpenCLIP and transformers do before a SentencePiece or Hugging Face tokenizer. `cleanup` is none,
/// whitespace (applies ftfy's repairs, unescapes entities, collapses white space), lower (the same, and lower case),
/// canonicalize (the same as lower, and removes ASCII punctuation and turns `_` into a space), or siglip (as transformers'
/// SiglipTokenizer: lower case, no punctuation, collapsed white space, but no repairs).
std::string cleaned_caption(std::string_view text, const std::string& cleanup);

}  // namespace tessera
