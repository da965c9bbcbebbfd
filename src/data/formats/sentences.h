#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Splits a text into sentences: at every full stop, line end and </s>. Unicode white space around a sentence is stripped, as by Python's
/// str.strip(), and empty sentences are dropped. Decimal numbers are split too, because the published sentences of long captions were made
/// that way (DreamLIP, arXiv 2403.17007; FLAIR, arXiv 2412.03561). Bytes that are not UTF-8 are kept.
std::vector<std::string> caption_sentences(std::string_view text);

}  // namespace tessera
