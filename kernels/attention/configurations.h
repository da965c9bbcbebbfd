#pragma once

// The instantiations of the GPU kernels. Plain C++, for the host.
#include <cstring>

#include "kernels/attention/attention.h"

namespace tessera::kernels {
namespace {

/// Sequences have at most `tokens` tokens.
struct AttentionConfiguration {
  const char* name;
  int tokens;
};
constexpr AttentionConfiguration kAttentionForward[] = {{"56", 56}, {"80", 80}, {"128", 128}, {"200", 200}, {"256", 256}};
constexpr AttentionConfiguration kAttentionBackward[] = {{"64", 64}, {"80", 80}, {"128", 128}, {"208", 208}, {"256", 256}};

/// Returns the configuration that the problem names, or else the smallest one that fits it; null if there is none.
template <std::size_t kCount>
const AttentionConfiguration* attention_configuration(const AttentionConfiguration (&all)[kCount], const AttentionProblem& problem) {
  for (const AttentionConfiguration& each : all) {
    if (problem.configuration != nullptr && std::strcmp(problem.configuration, each.name) != 0) continue;
    if (problem.longest <= each.tokens) return &each;
  }
  return nullptr;
}

}  // namespace
}  // namespace tessera::kernels
