#include "src/data/loading/concept_balance.h"

namespace tessera {
namespace {

ConceptCounts counts_of(const BalanceSettings& settings) {
  config::require(settings.counts);
  return read_concept_counts(settings.counts);
}

}  // namespace

ConceptBalance::ConceptBalance(const BalanceSettings& settings, std::uint64_t seed)
    : threshold_(static_cast<double>(settings.threshold)),
      seed_(seed),
      counts_(counts_of(settings)),
      matcher_(counts_.entries, settings.counts) {}

bool ConceptBalance::keeps(const Sample& sample, std::int64_t index, std::int64_t repeat) const {
  Random random(seed_, Purpose::balance, {static_cast<std::uint64_t>(repeat), static_cast<std::uint64_t>(index)});
  return random.chance(counts_.keep_probability(matcher_.find(sample.captions), threshold_));
}

}  // namespace tessera
