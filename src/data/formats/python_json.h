#pragma once

#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace tessera {

/// Parses JSON as Python's json module writes it, which may be nonstandard: NaN and Infinity become null, and lone halves of
/// surrogate pairs become U+FFFD. Returns a discarded value (is_discarded()) if the text is not JSON or nested more than 100 levels deep.
nlohmann::json parse_python_json(std::string_view text);

}  // namespace tessera
