#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

class Source;

/// How training mixes the components of a source; see docs/training.md.
enum class MixtureMode { accumulate, sequential, concat, weighted };

/// One of the data sets that a source consists of: the source's samples first .. first + size - 1.
struct SourceComponent {
  std::string label;      // empty: the source itself
  std::string described;  // for messages
  std::int64_t first = 0, size = 0;
  double weight = 1.0;             // how often an epoch holds each of its samples (weighted)
  const Source* source = nullptr;  // the component itself; lives as long as the whole source
};

/// What the sampler draws from, and how.
struct Mixing {
  MixtureMode mode = MixtureMode::concat;
  std::vector<SourceComponent> components;
};

}  // namespace tessera
