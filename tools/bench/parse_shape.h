#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::bench {

/// Parses "64x55x196" into {64, 55, 196}. Each size must be at least 1, and there must be exactly `dimensions` sizes. Otherwise throws a
/// UserError that names the option and an example.
std::vector<std::int64_t> parse_shape(const std::string& text, std::size_t dimensions, const char* option,
                                      const char* example);

}  // namespace tessera::bench
