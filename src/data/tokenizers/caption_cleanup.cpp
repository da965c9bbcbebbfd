#include "src/data/tokenizers/caption_cleanup.h"

#include "src/data/tokenizers/clip_text.h"
#include "src/data/tokenizers/unicode.h"

namespace tessera {
namespace {

bool is_punctuation(char32_t code) {
  return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') || (code >= '[' && code <= '`') ||
         (code >= '{' && code <= '~');
}

}  // namespace

std::string cleaned_caption(std::string_view text, const std::string& cleanup) {
  if (cleanup == "none") return std::string(text);
  if (cleanup == "lower") return unicode::encode(clip_text::clean(text, Cleanup::full));
  const bool siglip = cleanup == "siglip" || cleanup == "siglip_cased";
  std::u32string codes = siglip ? unicode::decode(text) : clip_text::repaired(text, Cleanup::full);
  if (cleanup != "whitespace") {
    if (cleanup == "canonicalize")
      for (char32_t& code : codes)
        if (code == U'_') code = U' ';
    // The lower case of a sigma depends on what follows it, so the order of the steps matters. transformers converts to lower case before
    // it removes punctuation. OpenCLIP removes punctuation first.
    if (cleanup == "siglip") clip_text::lower_case(codes);
    std::erase_if(codes, is_punctuation);
    if (cleanup == "canonicalize") clip_text::lower_case(codes);
    clip_text::collapse_space(codes);
  }
  return unicode::encode(codes);
}

}  // namespace tessera
