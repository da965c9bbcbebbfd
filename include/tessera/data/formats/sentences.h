#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// The sentences of a text: cut at every full stop, line end and </s>, each without the white space around it (Unicode's,
/// as Python's str.strip() takes it), empty ones left out. Decimals are cut too, which is how the published sentences of
/// long captions were made (DreamLIP, arXiv 2403.17007; FLAIR, arXiv 2412.03561). Bytes that are not UTF-8 are kept.
std::vector<std::string> caption_sentences(std::string_view text);

}  // namespace tessera
