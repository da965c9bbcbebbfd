#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/data/formats/concepts.h"
#include <tessera/data/source.h>

namespace tessera {

/// How often a source's samples contain the entries of a list.
struct CountedConcepts {
  ConceptCounts counts;
  std::int64_t samples = 0;                      // samples with captions that could be read
  std::int64_t matched = 0;                      // of these, samples that contain an entry
  std::map<std::string, std::int64_t> left_out;  // samples that could not be read, by reason
  std::vector<double> kept;                      // for each threshold, the expected number of samples that concept balance keeps
};

/// Counts the samples that contain each entry in any of their captions. Reads every sample once, without its image if the source can.
/// What was found is in a file in the folder `scratch` until the expected numbers of kept samples are known. Throws UserError if the source
/// does, or if no sample contains an entry.
CountedConcepts count_concepts(const std::shared_ptr<const Source>& source, std::vector<std::string> entries, const std::string& origin,
                               const std::vector<std::int64_t>& thresholds, std::int64_t threads, const std::string& scratch,
                               const std::function<void(std::int64_t done, std::int64_t total)>& progress);

}  // namespace tessera
