#pragma once

#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace tessera {

/// JSON as Python's json module writes it, beyond the standard: NaN and Infinity are null here, and halves of surrogate
/// pairs are U+FFFD. Discarded (is_discarded()) when it is no JSON.
nlohmann::json parse_python_json(std::string_view text);

}  // namespace tessera
