#pragma once

#include <string>

namespace tessera {

/// Returns the text of a JSON value, in which U+FFFD replaces bytes that are not UTF-8. Json::dump() alone would throw, and a path or
/// caption in Latin-1 would end a run.
template <class Json>
std::string dump_utf8(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace tessera
