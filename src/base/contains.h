#pragma once

#include <algorithm>
#include <concepts>
#include <ranges>

namespace tessera {

/// Returns whether a range has an element that equals `value`, as C++23's std::ranges::contains.
template <std::ranges::input_range Range, class Value>
  requires std::equality_comparable_with<std::ranges::range_reference_t<Range>, const Value&>
bool contains(Range&& range, const Value& value) {
  return std::ranges::find(range, value) != std::ranges::end(range);
}

}  // namespace tessera
