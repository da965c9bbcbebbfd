#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::bench {

/// Parses "64x55x196" into {64, 55, 196}. Throws UserError naming the option and an example unless there are `dimensions` sizes of
/// at least 1.
std::vector<std::int64_t> parse_shape(const std::string& text, std::size_t dimensions, const char* option,
                                      const char* example);

}  // namespace tessera::bench
