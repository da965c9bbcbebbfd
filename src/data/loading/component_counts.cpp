#include "src/data/loading/component_counts.h"
#include "src/data/loading/told_samples.h"

#include "src/data/loading/bad_share.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr std::int64_t kJudgedFrom = 100;  // the share of bad samples is checked once this many samples were seen

}  // namespace

ComponentCounts::ComponentCounts(std::vector<SourceComponent> components, const LoaderSettings& settings,
                                 std::vector<std::string> needed, std::string share_setting,
                                 const std::shared_ptr<ToldSamples>& told)
    : components_(std::move(components)),
      max_bad_share_(settings.max_bad_share),
      max_bad_run_(settings.max_bad_run),
      share_setting_(std::move(share_setting)),
      needed_(std::move(needed)) {
  for (const SourceComponent& component : components_) counts_.push_back({.skips = SkipLog(component.described, told)});
}

void ComponentCounts::good(std::int64_t component) {
  Count& count = counts_[static_cast<std::size_t>(component)];
  ++count.good;
  if (count.run == 0) return;
  count.run = 0;
  count.run_reasons.clear();
  count.run_fields.clear();
}

void ComponentCounts::bad(std::int64_t component, const PreparedSample& sample) {
  Count& count = counts_[static_cast<std::size_t>(component)];
  count.skips.note(sample.bad_reason, sample.bad_text);
  if (count.run++ == 0) count.run_first = sample.bad_text;
  ++count.run_reasons[sample.bad_reason];
  count.run_fields.insert(sample.found.begin(), sample.found.end());
  const SourceComponent& of = components_[static_cast<std::size_t>(component)];
  check_share(of, count);
  check_run(of, count);
}

void ComponentCounts::check_share(const SourceComponent& component, const Count& count) const {
  const std::int64_t bad = count.skips.total(), seen = count.good + bad;
  if (seen < kJudgedFrom || static_cast<double>(bad) <= max_bad_share_ * static_cast<double>(seen)) return;
  user_error(component.described, ": ", bad, " of the first ", seen, " samples cannot be used (",
             describe_counts(count.skips.counts()), "), ",
             describe_bad_share(max_bad_share_, bad, seen, share_setting_),
             count.good == 0 ? "; " + describe_fields(count.run_fields, needed_, component) : "",
             "; the first: ", count.skips.first());
}

void ComponentCounts::check_run(const SourceComponent& component, const Count& count) const {
  if (count.run < max_bad_run_) return;
  user_error(component.described, ": ", count.run, " samples in a row cannot be used (",
             describe_counts(count.run_reasons), "), as many as max_bad_run allows; ",
             describe_fields(count.run_fields, needed_, component), "; the first: ", count.run_first);
}

void ComponentCounts::report(std::int64_t epoch) {
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    const SkipLog& skips = counts_[i].skips;
    if (skips.total() == counts_[i].reported) continue;
    counts_[i].reported = skips.total();
    log::info("data: ", components_[i].label.empty() ? "" : components_[i].label + ": ", "up to the end of epoch ",
              epoch, " ", with_thousands(skips.total()), " of ", with_thousands(skips.total() + counts_[i].good),
              " samples were skipped: ", describe_counts(skips.counts()));
  }
}

std::string ComponentCounts::describe(std::int64_t component) const {
  std::map<std::string, std::int64_t> skipped;
  std::string first;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    if (component >= 0 && static_cast<std::size_t>(component) != i) continue;
    for (const auto& [reason, count] : counts_[i].skips.counts()) skipped[reason] += count;
    if (first.empty()) first = counts_[i].skips.first();
  }
  return concat(describe_counts(skipped), "; the first: ", first);
}

}  // namespace tessera
