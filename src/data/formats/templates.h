#pragma once

#include <string>

namespace tessera {

/// Returns the template with its first {} replaced by the class name.
inline std::string fill_template(std::string text, const std::string& name) {
  const std::size_t place = text.find("{}");
  return place == std::string::npos ? text : text.replace(place, 2, name);
}

}  // namespace tessera
