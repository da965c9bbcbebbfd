#pragma once

// Chooses among the instantiations (configurations) of a kernel. An operator lists its configurations by name, and a table of choices. No
// choice is ever made by timing while a program runs: the order of sums depends on it, and runs must be repeatable.
#include <cstddef>
#include <cstdint>

#include "kernels/types.h"

namespace tessera::kernels {
namespace {

struct TunedDevice {
  int compute_capability;    ///< 90 for 9.0
  std::size_t block_memory;  ///< bytes of shared memory that a block may use
};

/// On GPUs of this compute capability, problems up to these sizes use this configuration.
struct TunedChoice {
  Pass pass;
  DataType type;
  int compute_capability;
  std::int64_t most_tokens, most_patches;
  const char* configuration;
};

/// Returns the configuration of the first row that fits the problem; null if there is none.
template <std::size_t kRows>
const char* tuned_choice(const TunedChoice (&choices)[kRows], Pass pass, DataType type, int compute_capability, std::int64_t tokens,
                         std::int64_t patches) {
  for (const TunedChoice& choice : choices) {
    const bool fits = choice.pass == pass && choice.type == type && choice.compute_capability == compute_capability;
    if (fits && tokens <= choice.most_tokens && patches <= choice.most_patches) return choice.configuration;
  }
  return nullptr;
}

}  // namespace
}  // namespace tessera::kernels
