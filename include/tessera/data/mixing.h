#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

class Source;

/// How the components of a source follow each other in training; see docs/training.md.
enum class MixtureMode { accumulate, sequential, concat, weighted };

/// A data set that a source consists of: its samples first .. first + size - 1.
struct SourceComponent {
  std::string label;      // empty: the source itself
  std::string described;  // for messages
  std::int64_t first = 0, size = 0;
  double weight = 1.0;             // how often an epoch holds each of its samples (weighted)
  const Source* source = nullptr;  // the component's own; lives as long as the whole
};

/// What the sampler draws from, and how.
struct Mixing {
  MixtureMode mode = MixtureMode::concat;
  std::vector<SourceComponent> components;
};

}  // namespace tessera
