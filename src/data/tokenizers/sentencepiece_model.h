#pragma once

#include <string_view>

namespace tessera {

/// False if the tables of a SentencePiece model's normalization point outside of themselves: the library follows them
/// unchecked. True for what is no model at all, which the library refuses by itself.
bool has_sound_normalization(std::string_view model);

}  // namespace tessera
