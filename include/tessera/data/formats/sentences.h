#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Splits a text into sentences: at every full stop, line end and </s>. White space around a sentence is stripped (Unicode's,
/// as in Python's str.strip()), and empty sentences are dropped. Decimal numbers are split too, which is how the published
/// sentences of long captions were made (DreamLIP, arXiv 2403.17007; FLAIR, arXiv 2412.03561). Bytes that are not UTF-8 are kept.
std::vector<std::string> caption_sentences(std::string_view text);

}  // namespace tessera
