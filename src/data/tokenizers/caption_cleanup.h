#pragma once

#include <string>
#include <string_view>

namespace tessera {

/// Cleans a caption as OpenCLIP and transformers do before a SentencePiece or Hugging Face tokenizer. `cleanup` is none, whitespace, lower,
/// canonicalize, siglip or siglip_cased. `whitespace` applies ftfy's repairs, unescapes entities and collapses white space. `lower` also
/// converts to lower case. `canonicalize` does all this, and also removes ASCII punctuation and turns `_` into a space. `siglip` does what
/// transformers' SiglipTokenizer does: it converts to lower case (siglip_cased: not), removes punctuation and collapses white space, but
/// repairs nothing.
std::string cleaned_caption(std::string_view text, const std::string& cleanup);

}  // namespace tessera
