#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

class Source;

/// How training mixes the components of a source; see docs/training.md.
enum class MixtureMode { accumulate, sequential, concat, weighted };

/// One of the data sets that a source consists of. Its samples have the indices first to first + size - 1 in the source.
struct SourceComponent {
  std::string label;      // label of the data set; empty if the source consists of only this data set
  std::string described;  // description for messages
  std::int64_t first = 0, size = 0;
  double weight = 1.0;             // in mode weighted: how often an epoch contains each sample of this component
  const Source* source = nullptr;  // the component itself; lives as long as the whole source
};

/// The data sets that the sampler draws from, and how it mixes them.
struct Mixing {
  MixtureMode mode = MixtureMode::concat;
  std::vector<SourceComponent> components;
};

}  // namespace tessera
