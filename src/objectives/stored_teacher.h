#pragma once

#include <cstdint>
#include <optional>

#include <tessera/config/fields.h>

namespace tessera {

/// A teacher of `affinity`, whose embeddings the data hold.
struct StoredTeacher {
  std::int64_t width = 0;
  double temperature = 0;
};

void fields(auto& v, StoredTeacher& s) {
  v("width", s.width, "number of columns of its embeddings", config::at_least(1));
  v("temperature", s.temperature, "what its cosines are divided by", config::above(0));
}

inline std::optional<config::Problem> validate(const StoredTeacher& s) {
  if (s.width < 1) return config::Problem{"width", "is not set: give the number of columns of the teacher's embeddings"};
  if (s.temperature == 0) return config::Problem{"temperature", "is not set: give what the teacher's cosines are divided by, such as 0.01"};
  return std::nullopt;
}

}  // namespace tessera
