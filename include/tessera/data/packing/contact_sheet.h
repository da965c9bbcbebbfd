#pragma once

#include <cstdint>
#include <vector>

#include <tessera/data/sample.h>

namespace tessera {

/// Pictures in rows of `columns`, each with the start of its first caption below. cell: pixels, the side of the square
/// that a picture is fitted into (small pictures are enlarged by whole numbers). Every sample needs its decoded
/// `image`. The font is ASCII: letters of Latin alphabets are spelt with it ("ae", "ss", "e"), others are drawn as "?".
Image contact_sheet(const std::vector<Sample>& samples, std::int64_t columns, std::int64_t cell);

/// How many characters of the samples' first captions are drawn as "?".
std::int64_t undrawable_characters(const std::vector<Sample>& samples);

}  // namespace tessera
