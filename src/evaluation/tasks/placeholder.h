#pragma once

#include <string>

namespace tessera {

/// Returns the placeholder of the class name in a template: {c}, as in CLIP_benchmark's files, if the template has it, otherwise {}.
inline std::string placeholder_of(const std::string& form) {
  return form.find("{c}") == std::string::npos ? "{}" : "{c}";
}

}  // namespace tessera
