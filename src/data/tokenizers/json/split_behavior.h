#pragma once

#include <string>
#include <vector>

#include "src/data/tokenizers/json/part.h"
#include "src/data/tokenizers/json/pattern.h"
#include "src/data/tokenizers/json/pre_tokenizer.h"

namespace tessera::json_tokenizer {

/// What becomes of the matches of a split.
enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// The part's `behavior`; `otherwise` where it has none.
Behavior read_behavior(const Part& part, Behavior otherwise);

/// Appends the pieces that a piece becomes; `matches` are bytes of the piece, from left to right, and with `invert` what lies
/// between them counts as the matches.
void append_split(const Piece& piece, const std::vector<Span>& matches, Behavior behavior, bool invert, std::vector<Piece>& out);

}  // namespace tessera::json_tokenizer
