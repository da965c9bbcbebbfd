#pragma once

#include <cstdint>
#include <vector>

#include <tessera/sample.h>

namespace tessera {

/// Draws the samples' images in rows of `columns`, each with the start of its first caption below it. Each image is fitted into a square
/// with sides of `cell` pixels; images of at most half this size are enlarged by a whole-number factor. Every sample needs its decoded
/// `image`. The font has only ASCII characters: other Latin letters are transliterated ("ae", "ss", "e"), and all other characters are
/// drawn as "?".
Image contact_sheet(const std::vector<Sample>& samples, std::int64_t columns, std::int64_t cell);

/// Returns how many characters of the samples' first captions are drawn as "?".
std::int64_t undrawable_characters(const std::vector<Sample>& samples);

}  // namespace tessera
