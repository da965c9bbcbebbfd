#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "src/data/loading/sample_transform.h"
#include "src/data/loading/skip_log.h"
#include "src/data/loading/told_samples.h"
#include <tessera/data/mixing.h>

namespace tessera {

/// Counts the good and bad samples of each component of the source, and throws an error when there are too many bad ones.
class ComponentCounts {
 public:
  /// `share_setting` is the text that messages put before a value of max_bad_share, for example "--max-bad-share ".
  ComponentCounts(std::vector<SourceComponent> components, const LoaderSettings& settings,
                  std::vector<std::string> needed, std::string share_setting,
                  const std::shared_ptr<ToldSamples>& told);

  void good(std::int64_t component);
  /// Counts a bad sample. Throws UserError if the share of bad samples is then above max_bad_share, or if the last max_bad_run samples
  /// were bad.
  void bad(std::int64_t component, const PreparedSample& sample);

  /// For each component that skipped samples since the last report, logs how many it has skipped up to the end of this epoch.
  void report(std::int64_t epoch);
  /// Describes the skipped samples of one component or of all (-1): "3 bad_image; the first: ...".
  std::string describe(std::int64_t component) const;

 private:
  struct Count {
    std::int64_t good = 0;
    SkipLog skips;
    std::int64_t reported = 0;
    std::int64_t run = 0;  // current number of consecutive bad samples
    std::map<std::string, std::int64_t> run_reasons;
    std::set<std::string> run_fields;
    std::string run_first;
  };
  void check_share(const SourceComponent& component, const Count& count) const;
  void check_run(const SourceComponent& component, const Count& count) const;

  std::vector<SourceComponent> components_;
  double max_bad_share_;
  std::int64_t max_bad_run_;
  std::string share_setting_;
  std::vector<std::string> needed_;
  std::vector<Count> counts_;
};

}  // namespace tessera
