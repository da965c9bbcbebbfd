#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>

#include "src/data/formats/in_threads.h"
#include <tessera/data/source.h>

namespace tessera {

/// Reads all samples in threads, and calls visit(index, sample) for those that can be read.
template <class Visit>
void for_each_sample(const IndexedSource& source, const Visit& visit) {
  constexpr std::int64_t at_once = 1024;  // samples per task
  const std::int64_t pieces = (source.size() + at_once - 1) / at_once;
  for_each_in_threads(static_cast<std::size_t>(pieces), std::max(1U, std::thread::hardware_concurrency()), [&](std::size_t piece) {
    const std::int64_t begin = static_cast<std::int64_t>(piece) * at_once;
    for (std::int64_t i = begin; i < std::min(begin + at_once, source.size()); ++i) {
      try {
        visit(i, source.get(i));
      } catch (const SampleError&) {
        continue;
      }
    }
  });
}

}  // namespace tessera
