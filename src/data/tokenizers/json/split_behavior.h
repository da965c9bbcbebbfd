#pragma once

#include <string>
#include <vector>

#include "src/data/tokenizers/json/part.h"
#include "src/data/tokenizers/json/pattern.h"
#include "src/data/tokenizers/json/pre_tokenizer.h"

namespace tessera::json_tokenizer {

/// What a split does with its matches.
enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// Returns the part's `behavior`, or `otherwise` if it has none.
Behavior read_behavior(const Part& part, Behavior otherwise);

/// Splits a piece and appends the result. `matches` are ranges of bytes in the piece, from left to right; with `invert` the parts
/// between them count as the matches.
void append_split(const Piece& piece, const std::vector<Span>& matches, Behavior behavior, bool invert, std::vector<Piece>& out);

}  // namespace tessera::json_tokenizer
