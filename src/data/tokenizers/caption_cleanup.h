#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

/// Which part of ftfy 6.3 to apply before a caption is tokenized. Each level includes the levels before it.
enum class Cleanup : std::uint8_t {
  none,      // changes nothing
  basic,     // fixes entities, C1 controls, ligatures, widths, quotes and line breaks; removes controls; applies NFC; repairs no encodings
  mojibake,  // also repairs UTF-8 that was read as Latin-1 or Windows-1252
  full       // applies all of ftfy's fixes
};

/// Does what ftfy.fix_text does, limited to the given level.
std::u32string fix_text(std::u32string_view text, Cleanup level);

/// Cleans a caption as OpenCLIP and transformers do before a SentencePiece or Hugging Face tokenizer. `cleanup` is none, whitespace, lower,
/// canonicalize, siglip or siglip_cased. `whitespace` applies ftfy's repairs, unescapes entities and collapses white space. `lower` also
/// converts to lower case. `canonicalize` does all this, and also removes ASCII punctuation and turns `_` into a space. `siglip` does what
/// transformers' SiglipTokenizer does: it converts to lower case (siglip_cased: not), removes punctuation and collapses white space, but
/// repairs nothing.
std::string cleaned_caption(std::string_view text, const std::string& cleanup);

/// Cleans a caption as OpenCLIP does before CLIP's byte pairs. `level` says which of ftfy's repairs come first. Then html.unescape is
/// applied twice, white space is collapsed, and the text is converted to lower case.
std::string clean_for_clip(std::string_view text, Cleanup level);

/// Returns whether the text consists of tabs, line breaks and printable ASCII other than `&`, so that clean_for_clip() could change only
/// white space and case.
bool is_plain(std::string_view text);

}  // namespace tessera
